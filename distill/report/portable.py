"""Text without the folders of the machine it was made on: a model card is read elsewhere, and may be published."""

from __future__ import annotations

import re
import shlex

_ON_THE_HUB = {
    **dict.fromkeys(("teacher.name", "teacher.names", "student.name", "student.tokenizer", "push"), 1),
    **dict.fromkeys(("corpus.name", "recipe"), 2),
}
"""Setting -> the most separators in a name that is no path, such as `google/bert`."""
_NAME = re.compile(r"[\w$][\w.${}-]*(/[\w$][\w.${}-]*)*")
_ITEM = re.compile(r""""[^"]*"|'[^']*'|(?:\\.|\$\{[^}]*\}|[^\[\]{}(),:"'])+""")
"""One value in a list or a dictionary of Hydra's grammar; a quoted one is whole."""
_PATH_IN_TEXT = re.compile(r"""(?<![\w:/\\.~])(?:~\w*|\.{1,2}|[A-Za-z]:)?[\\/][^\s'"`,;()<>|]*[^\s'"`,;()<>|.:]""")


def portable_command(command: str) -> str:
    """The command with the last part alone of every path in it: `tasks.path=glue` for `tasks.path=/data/glue`."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quote that is not closed
        words = command.split()
    return shlex.join(map(_word, words))


def portable_text(text: str) -> str:
    """A sentence, such as an error message, with the last part alone of every path in it that has a root."""
    return _PATH_IN_TEXT.sub(lambda match: _last_part(match[0]), text)


def _word(word: str) -> str:
    key, equals, value = word.partition("=")
    if not equals:
        return _last_part(word) if _separators(word) else word
    setting = key.lstrip("+~")
    return f"{key}={_ITEM.sub(lambda match: _item(setting, match[0]), value)}"


def _item(setting: str, item: str) -> str:
    plain = item.strip().strip("\"'")
    named = _NAME.fullmatch(plain) and _separators(plain) <= _ON_THE_HUB.get(setting, 0)
    if named or not (_separators(plain) or plain.startswith("~")):
        return item
    return item.replace(plain, _last_part(plain))


def _separators(text: str) -> int:
    return len(re.findall(r"[\\/]+", text))


def _last_part(path: str) -> str:
    """A home folder has the name of its user: it is `~` alone."""
    parts = [part for part in re.split(r"[\\/]+", path) if part]
    last = parts[-1] if parts else "/"
    return "~" if last.startswith("~") else last
