"""Text without local folders: a model card may be published."""

from __future__ import annotations

import re
import shlex

_ON_THE_HUB = {
    **dict.fromkeys(
        ("teacher.name", "teacher.names", "student.name", "student.tokenizer", "transfer.masked_lm", "push"), 1
    ),
    **dict.fromkeys(("corpus.name", "recipe"), 2),
}
"""Setting -> the most slashes in a hub name, such as `google/bert`; a value with more is a path."""
_NAME = re.compile(r"[\w$][\w.${}-]*(/[\w$][\w.${}-]*)*")
_ITEM = re.compile(r""""[^"]*"|'[^']*'|(?:\\.|\$\{[^}]*\}|[^\[\]{}(),:"'])+""")
"""One value in a list or a dictionary of Hydra's grammar; a quoted value is one match."""
_PATH_IN_TEXT = re.compile(r"""(?<![\w:/\\.~])(?:~\w*|\.{1,2}|[A-Za-z]:)?[\\/][^\s'"`,;()<>|]*[^\s'"`,;()<>|.:]""")


def portable_command(command: str) -> str:
    """The command with each path shortened to its last part: `tasks.path=glue` for `tasks.path=/data/glue`."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quote that is not closed
        words = command.split()
    return shlex.join(map(_word, words))


def portable_text(text: str) -> str:
    """A sentence, such as an error message, with each path that begins at a folder shortened to its last part."""
    return _PATH_IN_TEXT.sub(lambda match: _last_part(match[0]), text)


def _word(word: str) -> str:
    key, equals, value = word.partition("=")
    if not equals:
        return _last_part(word) if _separators(word) else word
    setting = key.lstrip("+~")
    return f"{key}={_ITEM.sub(lambda match: _item(setting, match[0]), value)}"


def _item(setting: str, item: str) -> str:
    plain = item.strip().strip("\"'")
    on_hub = _NAME.fullmatch(plain) and _separators(plain) <= _ON_THE_HUB.get(setting, 0)
    if on_hub or not (_separators(plain) or plain.startswith("~")):
        return item
    return item.replace(plain, _last_part(plain))


def _separators(text: str) -> int:
    return len(re.findall(r"[\\/]+", text))


def _last_part(path: str) -> str:
    """The last part of a path; `~` for a home folder, whose last part is the name of its user."""
    parts = [part for part in re.split(r"[\\/]+", path) if part]
    last = parts[-1] if parts else "/"
    return "~" if last.startswith("~") else last
