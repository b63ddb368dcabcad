"""Hashes of files: another content is noticed whatever its size and times; a remembered hash is that of the file."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from distill.runtime.storage import cache, file_hashes

FIRST, SECOND = b"the old boat", b"the new boat"


def of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def replace(path: Path, content: bytes, how: str = "in place") -> None:
    """Another content, of the same size and with the same time of change."""
    before = path.stat()
    if how == "in place":
        with path.open("r+b") as file:
            file.write(content)
    else:
        path.with_name("new").write_bytes(content)
        path.with_name("new").rename(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(FIRST)
    return tmp_path / "file"


@pytest.fixture
def remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every hash is remembered. Yields what was hashed."""
    hashed: list[str] = []

    def counted(file: Any, name: str) -> Any:
        hashed.append(name)
        return real(file, name)

    real = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", counted)
    monkeypatch.setattr(file_hashes, "LARGE", 1)
    monkeypatch.setattr(file_hashes, "SETTLED", -1.0)
    monkeypatch.setattr(file_hashes, "_keeps_times", lambda file: True)
    with cache.using(str(tmp_path / "cache")):
        yield hashed


def entries(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache" / file_hashes.PART).glob("*"))


@pytest.mark.parametrize("how", ["in place", "renamed"])
def test_another_content_of_the_same_size_and_time_is_noticed(how: str, path: Path) -> None:
    assert file_hashes.sha256(path) == of(FIRST)
    replace(path, SECOND, how)
    assert file_hashes.sha256(path) == of(SECOND)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is remembered")
@pytest.mark.parametrize("how", ["in place", "renamed"])
def test_it_is_noticed_too_where_a_hash_is_remembered(how: str, path: Path, remembered: list[str]) -> None:
    for _ in range(3):
        assert file_hashes.sha256(path) == of(FIRST)
    assert len(remembered) == 1
    time.sleep(0.02)  # the kernel's clock ticks every 1 to 10 ms
    replace(path, SECOND, how)
    assert file_hashes.sha256(path) == of(SECOND)


def test_a_hash_is_found_under_another_name_of_the_file(path: Path, remembered: list[str]) -> None:
    file_hashes.sha256(path)
    path.with_name("link").symlink_to(path)
    assert file_hashes.sha256(path.with_name("link")) == of(FIRST)
    assert len(remembered) == 1


@pytest.mark.parametrize(
    "without",
    [
        lambda patch: patch.setattr(file_hashes, "LARGE", len(FIRST) + 1),
        lambda patch: patch.setattr(file_hashes, "SETTLED", 60.0),
        lambda patch: patch.setattr(file_hashes, "_keeps_times", lambda file: False),
    ],
    ids=["small", "changed just now", "a file system with times of its own"],
)
def test_what_is_small_or_not_certain_is_not_remembered(
    without: Callable[[pytest.MonkeyPatch], None],
    path: Path,
    remembered: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch)
    assert [file_hashes.sha256(path) for _ in range(2)] == [of(FIRST)] * 2
    assert len(remembered) == 2
    assert not entries(tmp_path)


def test_a_file_that_changes_while_it_is_hashed_is_not_remembered(
    path: Path, remembered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = hashlib.file_digest

    def changing(file: Any, name: str) -> Any:
        found = before(file, name)
        time.sleep(0.02)
        replace(path, SECOND)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "file_digest", changing)
        file_hashes.sha256(path)
    assert not entries(tmp_path)
    assert file_hashes.sha256(path) == of(SECOND)


@pytest.mark.parametrize("content", [b"", of(FIRST).encode()[:-1], b"x" * 64, b"\xff"])
def test_a_damaged_entry_is_not_used(content: bytes, path: Path, remembered: list[str], tmp_path: Path) -> None:
    file_hashes.sha256(path)
    (entry,) = entries(tmp_path)
    entry.write_bytes(content)
    assert file_hashes.sha256(path) == of(FIRST)
    assert entry.read_text() == of(FIRST)


def test_entries_are_removed_when_the_cache_is_too_large(path: Path, remembered: list[str], tmp_path: Path) -> None:
    file_hashes.sha256(path)
    with cache.using(str(tmp_path / "cache"), max_gib=1 / 2**30):
        pass
    assert not entries(tmp_path)


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        ("{root} / - ext4", True),
        ("{root} / - ext4;{folder} / - vfat", False),
        ("{root} / - overlay;{folder} / - xfs", True),
        ("{folder} / - nfs4;{folder} / - squashfs", False),
        ("{folder}-not / - ext4", False),
        ("", False),
    ],
)
def test_times_are_trusted_by_the_type_of_the_file_system(
    mounts: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    escaped = str(folder).replace(" ", r"\040")
    lines = [f"1 2 0:3 / {line.replace(' / - ', ' rw shared:1 - ')} x rw" for line in mounts.split(";") if line]
    (tmp_path / "mounts").write_text("\n".join(lines).format(root="/", folder=escaped))
    monkeypatch.setattr(file_hashes, "_MOUNTS", tmp_path / "mounts")
    file_hashes._types.cache_clear()
    try:
        assert file_hashes._keeps_times(folder / "file") is expected
    finally:
        file_hashes._types.cache_clear()


@pytest.mark.parametrize(
    ("info", "reliable"),
    [
        ({"size": 12, "mtime": 1.0, "created": 2.0, "ino": 3}, False),
        ({"size": 12, "LastModified": "Fri, 01 Jan 2027", "ETag": '"65920080-c"'}, False),  # nginx: time and size
        ({"ETag": 'W/"65920080-c"'}, False),
        ({"VersionId": None}, False),
        ({"VersionId": "null", "ETag": ""}, False),
        ({"ETag": '"9b2cf535f27731c974343645a3985328"'}, True),
        ({"ETag": '"9b2cf535f27731c974343645a3985328-12"'}, True),
        ({"generation": "1712000000000000"}, True),
        ({"blob_id": "0f1e", "size": 12}, True),
    ],
)
def test_what_a_file_system_states_is_used_only_if_it_changes_with_the_content(
    info: dict[str, Any], reliable: bool
) -> None:
    assert (file_hashes.version(info) is not None) is reliable
    changed = {key: str(value).replace("1", "2") for key, value in info.items()}
    assert not reliable or file_hashes.version(changed) != file_hashes.version(info)


def test_a_copy_is_read_from_its_beginning_as_often_as_needed(tmp_path: Path) -> None:
    copy, found = file_hashes.copied(io.BytesIO(FIRST), tmp_path)
    assert found == of(FIRST)
    for _ in range(2):
        with file_hashes.again(copy) as file:
            assert file.read() == FIRST
    copy.close()
