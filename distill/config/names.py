"""Names of tasks and stages, which are names of folders on any machine, beside the folders and files of a run."""

from __future__ import annotations

import re
import unicodedata

from distill.config.schemes import SCHEMES

LONGEST = 200
"""Bytes of a name: file systems take 255, and temporary names are longer."""
_ALLOWED = re.compile(r"\w[\w.-]*")
_ENDINGS = frozenset(
    "bin folds json lock md measured model npy npz onnx rows safetensors sha256 state taken targets tokens tries "
    "txt".split()
)
"""Endings, after a dot, of the files and folders that a run makes beside the folders of tasks."""
_OURS = frozenset({"best", "embedder", "export", "report", "shared"})
"""Names that a run has for folders of its own."""
_WINDOWS = re.compile(r"con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]", re.IGNORECASE)
"""Names of devices on Windows, whatever follows a dot."""
RULE = (
    f"letters, digits, -, _ and dots, no dot first or last, at most {LONGEST} bytes, and not the name of a file or "
    "folder of a run, or of a device"
)


def is_valid(name: str) -> bool:
    """Whether a folder of a task may have this name."""
    ending = name.casefold().rpartition(".")[2] if "." in name else ""
    fits = _ALLOWED.fullmatch(name) is not None and len(name.encode(errors="replace")) <= LONGEST
    artifacts = {str(scheme.file).partition("/")[0] for scheme in SCHEMES.values()}
    reserved = name.casefold() in _OURS | artifacts or is_device(name)
    return fits and not name.endswith(".") and not reserved and ending not in _ENDINGS


def is_device(name: str) -> bool:
    """Whether Windows takes the name for a device."""
    return _WINDOWS.fullmatch(name.partition(".")[0]) is not None


def plain(name: str) -> str:
    """The name with `_` in place of each character but letters, digits, - and dots, and without `_`, - and dots at its
    ends."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._-") or "task"


def mended(name: str) -> str:
    """A valid name that is as like this one as possible; the name itself if it is valid."""
    whole = plain(name)
    while len(whole.encode(errors="replace")) > LONGEST - len("task_"):
        whole = whole[:-1].rstrip("._-")
    if not is_valid(whole):
        whole = whole.replace(".", "_")
    return whole if is_valid(whole) else f"task_{whole}"


def folded(name: str) -> str:
    """The form that names share if some file systems take them for one, because these ignore case or how a letter is
    composed."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
