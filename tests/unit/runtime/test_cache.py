"""The user's cache: whole entries or none, no larger than it may be, and safe for several processes."""

from __future__ import annotations

import errno
import functools
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distill.runtime.storage import atomic, cache, locks, store
from distill.runtime.storage import run_folder as checkpoint
from tests.small import content

MIB = 2**20
KEY, OTHER = "0123456789abcdef", "f" * 16
NAMES = ["a" * 16, "b" * 16, "c" * 16]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(cache, "temporary", lambda: tmp_path / "own")
    with cache.using(str(tmp_path / "cache"), max_gib=10 * MIB / 2**30):
        yield tmp_path / "cache"


def filled(folder: Path, content: bytes = b"weights") -> Path:
    (folder / "task").mkdir(parents=True)
    (folder / "task" / "model.safetensors").write_bytes(content)
    (folder / "manifest.json").write_text("{}")
    return folder


def run_folder(path: Path) -> Path:
    checkpoint.claim(path)
    return path


def test_what_is_kept_is_taken(root: Path, tmp_path: Path) -> None:
    made, run = filled(tmp_path / "made"), run_folder(tmp_path / "run")
    (made / ".hidden").write_text("of the run alone")
    filled(run / "stage", b"of a run that was stopped")
    assert not store.take("models", KEY, run / "stage")
    assert store.keep("models", KEY, made)
    assert store.take("models", KEY, run / "stage")
    assert content(run / "stage") == {"task/model.safetensors": b"weights", "manifest.json": b"{}"}
    assert not store.take("models", OTHER, run / "stage")
    assert not store.take("logits", KEY, run / "stage")


@pytest.mark.parametrize("edited", ["run", "cache", "other"])
def test_a_file_that_is_edited_in_place_changes_nowhere_else(edited: str, root: Path, tmp_path: Path) -> None:
    names = {"run": tmp_path / "run", "cache": root / "models" / KEY / cache.CONTENT, "other": tmp_path / "other"}
    assert store.keep("models", KEY, filled(names["run"]))
    assert store.take("models", KEY, names["other"])
    files = {name: folder / "task" / "model.safetensors" for name, folder in names.items()}
    with files[edited].open("r+b") as file:
        file.write(b"WEIGHTS")
    expected = {name: b"WEIGHTS" if name == edited else b"weights" for name in files}
    assert {name: file.read_bytes() for name, file in files.items()} == expected
    assert all(path.stat().st_nlink == 1 for folder in names.values() for path in folder.rglob("*") if path.is_file())


def test_nothing_is_kept_or_taken_without_a_key(root: Path, tmp_path: Path) -> None:
    assert not store.keep("models", None, filled(tmp_path / "made"))
    assert not store.take("models", None, tmp_path / "taken")
    with store.making("models", None, lambda _: pytest.fail("nothing is waited for")):
        assert not root.exists()


def test_removed_runs_leave_what_is_kept(root: Path, tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    store.keep("models", KEY, filled(run / "stage"))
    atomic.remove(run / "stage", run)
    assert store.take("models", KEY, tmp_path / "taken")


@pytest.mark.parametrize("damage", ["changed", "cut", "missing", "added", "no hashes"])
def test_a_damaged_entry_is_removed(damage: str, root: Path, tmp_path: Path) -> None:
    store.keep("models", KEY, filled(tmp_path / "made"))
    file = root / "models" / KEY / cache.CONTENT / "task" / "model.safetensors"
    if damage == "missing":
        file.unlink()
    elif damage == "added":
        file.with_name("other.safetensors").write_bytes(b"")
    elif damage == "no hashes":
        (root / "models" / KEY / cache.FILES).write_text("{")
    else:
        file.write_bytes(b"Weights" if damage == "changed" else b"weig")
    assert not store.take("models", KEY, tmp_path / "taken")
    assert not (tmp_path / "taken").exists()
    assert not (root / "models" / KEY).exists()
    assert store.keep("models", KEY, filled(tmp_path / "again"))
    assert store.take("models", KEY, tmp_path / "taken")


def test_what_was_not_used_for_longest_is_removed(root: Path, tmp_path: Path) -> None:
    now = time.time()
    for age, name in enumerate(NAMES):
        store.keep("models", name, filled(tmp_path / name, bytes(3 * MIB)))
        os.utime(root / "models" / name, (now - 100 + age, now - 100 + age))
    store.take("models", NAMES[0], tmp_path / "taken")
    store.keep("logits", KEY, filled(tmp_path / "d", bytes(3 * MIB)))
    assert [(root / "models" / name).exists() for name in NAMES] == [True, False, True]
    assert store.take("logits", KEY, tmp_path / "taken-d")


@pytest.mark.parametrize("how", ["take", "found"])
def test_what_is_being_copied_or_read_is_not_removed_as_unused(
    how: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for age, name in enumerate(NAMES[:2]):
        store.keep("models", name, filled(tmp_path / name, bytes(3 * MIB)))
        os.utime(root / "models" / name, (1000 + age,) * 2)
    unchanged = store.checksums.unchanged

    def later(folder: Path, at: Path) -> bool:
        with cache.using(str(root), max_gib=4 * MIB / 2**30):
            pass  # of another process, which trims the cache at its end
        return unchanged(folder, at)

    monkeypatch.setattr(store.checksums, "unchanged", later)
    assert store.take("models", NAMES[0], tmp_path / "taken") if how == "take" else store.found("models", NAMES[0])
    assert [(root / "models" / name).exists() for name in NAMES[:2]] == [True, False]


def test_what_another_process_begins_to_use_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate(NAMES):
        folder = store.get_or_make("tables", name, functools.partial(filled, content=bytes(4 * MIB)))
        os.utime(folder.parent, (number, number))
    measure, left = cache.bytes_in, {*NAMES}

    def late(path: Path) -> int:
        left.remove(path.name)
        if not left:
            cache.used(root / "tables" / NAMES[0])
        return measure(path)

    with monkeypatch.context() as patched:
        patched.setattr(cache, "bytes_in", late)
        cache.trim()
    assert {path.name for path in (root / "tables").iterdir()} == {NAMES[0], NAMES[2]}


def test_parsed_files_and_token_ids_are_removed_too(root: Path, tmp_path: Path) -> None:
    for part in ("tables", "encoded"):
        cache.folder(part)
        (root / part / KEY).write_bytes(bytes(6 * MIB))
    os.utime(root / "tables" / KEY, (1, 1))
    cache.trim()
    assert [(root / part / KEY).exists() for part in ("tables", "encoded")] == [False, True]


def test_commands_outside_of_runs_remove_nothing(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not know how much the runs keep (`cache.max_gib`)."""
    assert store.keep("models", KEY, filled(tmp_path / KEY, bytes(MIB)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "distill").symlink_to(root)
    with monkeypatch.context() as outside:
        outside.setattr(cache, "_settings", cache._Settings(most=MIB // 2))
        assert store.keep("tables", OTHER, filled(tmp_path / OTHER))
        cache.trim()
    assert (root / "models" / KEY).exists()


def test_what_is_larger_than_the_cache_is_not_kept(root: Path, tmp_path: Path) -> None:
    store.keep("models", KEY, filled(tmp_path / KEY))
    assert not store.keep("models", OTHER, filled(tmp_path / OTHER, bytes(11 * MIB)))
    assert (root / "models" / KEY).exists()


def test_with_a_limit_of_0_it_is_not_used(tmp_path: Path) -> None:
    with cache.using(str(tmp_path / "cache")):
        assert store.keep("models", KEY, filled(tmp_path / "made"))
    assert cache.root() != tmp_path / "cache"  # the settings are those of one run
    with cache.using(str(tmp_path / "cache"), max_gib=0):
        assert not store.keep("models", OTHER, tmp_path / "made")
        assert not store.take("models", KEY, tmp_path / "taken")
        assert tmp_path not in cache.folder("tables").parents
    assert [path.name for path in (tmp_path / "cache" / "models").iterdir()] == [KEY]


def test_a_cache_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with cache.using(str(tmp_path / "file")):
        assert not store.keep("models", KEY, filled(tmp_path / "made"))
        assert not store.take("models", KEY, tmp_path / "taken")
        with store.making("models", KEY, lambda _: pytest.fail("nothing is waited for")):
            pass
        assert cache.folder("tables").is_dir()


def test_a_full_disk_leaves_no_part_of_an_entry(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    made = filled(tmp_path / "made")
    monkeypatch.setattr(atomic, "_cloned", full)
    assert not store.keep("models", KEY, made)
    assert not list((root / "models").iterdir())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_entry_stays_when_it_cannot_be_put_where_it_is_wanted(
    number: int, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    run = run_folder(tmp_path / "run")
    assert store.keep("models", KEY, filled(tmp_path / "made"))
    with monkeypatch.context() as patched:
        patched.setattr(atomic, "_cloned", lambda source, target: False)
        patched.setattr("shutil.copyfile", failing)
        if number == errno.ENOSPC:
            with pytest.raises(OSError, match="No space left"):
                store.take("models", KEY, run / "stage")
        else:
            assert not store.take("models", KEY, run / "stage")
    assert not (run / "stage").exists()
    assert store.take("models", KEY, run / "stage")


EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.copyfile", "os.utime"}


def killed(at: int, here: Path, act: Callable[[], object]) -> bool:
    """Whether a process that does this was killed at an access to a file in a folder: it may have fewer."""
    if (child := os.fork()) == 0:
        number = 0

        def hook(event: str, given: tuple[object, ...]) -> None:
            nonlocal number
            if event in EVENTS and str(given[0]).startswith(str(here)):
                number += 1
                if number == at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_an_entry_is_whole_or_absent_wherever_a_run_is_killed(root: Path, tmp_path: Path) -> None:
    made, run = filled(tmp_path / "made"), run_folder(tmp_path / "run")
    whole, at = content(made), 0
    while killed(at := at + 1, tmp_path, lambda: store.keep("models", KEY, made)):
        if store.take("models", KEY, run / "stage"):
            assert content(run / "stage") == whole
        assert store.keep("models", KEY, made)
        assert store.take("models", KEY, run / "stage")
        assert content(run / "stage") == whole
        cache.remove(root / "models" / KEY)
        assert content(made) == whole
    assert at > 20


def rows(folder: Path) -> None:
    (folder / "rows.arrow").write_bytes(b"rows")


def forbidden(folder: Path) -> None:
    pytest.fail("it is there")


@pytest.mark.parametrize("damaged", ["content/rows.arrow", cache.FILES])
@pytest.mark.parametrize("how", ["missing", "cut off", "a bit"])
def test_what_is_read_in_place_is_made_again_unless_it_is_whole(damaged: str, how: str, root: Path) -> None:
    folder = store.get_or_make("tables", KEY, rows)
    assert folder == root / "tables" / KEY / cache.CONTENT
    assert store.get_or_make("tables", KEY, forbidden) == folder
    before = (file := folder.parent / damaged).read_bytes()
    file.unlink()
    if how != "missing":
        file.write_bytes(before[: len(before) // 2] if how == "cut off" else bytes([before[0] ^ 1]) + before[1:])
    assert store.found("tables", KEY) is None
    with pytest.raises(KeyError):
        store.get_or_make("tables", KEY, lambda folder: {}["not made"])
    again = store.get_or_make("tables", KEY, rows)
    assert content(again) == {"rows.arrow": b"rows"}
    assert again == folder
    assert file.read_bytes() == before


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_what_is_read_in_place_is_whole_wherever_a_run_is_killed(root: Path, tmp_path: Path) -> None:
    at = 0
    while killed(at := at + 1, tmp_path, lambda: store.get_or_make("tables", KEY, rows)):
        if (kept := store.found("tables", KEY)) is not None:
            assert content(kept) == {"rows.arrow": b"rows"}
        assert content(store.get_or_make("tables", KEY, rows)) == {"rows.arrow": b"rows"}
        cache.remove(root / "tables" / KEY)
    assert at > 20


@pytest.mark.parametrize("why", ["no key", "a limit of 0", "not writable", "a full disk", "a file of others", "a link"])
def test_without_a_cache_it_is_made_in_a_temporary_folder(
    why: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, tables = os.urandom(8).hex(), root / "tables"
    place = tables if why == "not writable" else tables / key
    if why in ("not writable", "a file of others"):
        cache.folder("models")
        place.parent.mkdir(exist_ok=True)
        place.write_text("mine")
    elif why == "a link":
        cache.folder("tables")
        (tmp_path / "mine").mkdir()
        place.symlink_to(tmp_path / "mine")

    def make(folder: Path) -> None:
        if why == "a full disk" and root in folder.parents:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rows(folder)

    with cache.using(str(root), max_gib=0 if why == "a limit of 0" else 1):
        folder = store.get_or_make("tables", None if why == "no key" else key, make)
        assert content(folder) == {"rows.arrow": b"rows"}
        assert root not in folder.parents
        if why != "no key":
            assert store.get_or_make("tables", key, forbidden) == folder
    if place.is_file():
        assert place.read_text() == "mine"
    assert why != "a link" or not list((tmp_path / "mine").iterdir())


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="this user may write everywhere")
def test_a_cache_that_can_only_be_read_is_read(root: Path) -> None:
    folder = store.get_or_make("tables", KEY, rows)
    root.chmod(0o500)
    try:
        assert store.get_or_make("tables", KEY, forbidden) == folder
    finally:
        root.chmod(0o700)


def test_what_cannot_be_read_is_not_removed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network may be down."""
    folder = store.get_or_make("tables", KEY, rows)

    def failing(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr("hashlib.file_digest", failing)
        assert store.found("tables", KEY) is None
    assert store.get_or_make("tables", KEY, forbidden) == folder


@pytest.mark.skipif(sys.platform != "linux", reason="the request is that of Linux")
@pytest.mark.parametrize("shares", [True, False])
def test_files_share_their_blocks_where_the_file_system_can(
    shares: bool, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def clone(target: int, request: int, source: int) -> None:
        assert request == 0x40049409  # FICLONE
        if not shares:
            os.write(target, b"a part")
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        os.write(target, os.pread(source, 100, 0))

    monkeypatch.setattr(fcntl, "ioctl", clone)
    if shares:
        monkeypatch.setattr("shutil.copyfile", lambda *files: pytest.fail("is not copied"))
    made = filled(tmp_path / "made")
    assert store.keep("models", KEY, made)
    assert store.take("models", KEY, tmp_path / "taken")
    assert content(tmp_path / "taken") == content(made)


def test_what_would_fill_the_disk_is_not_kept(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = filled(tmp_path / "made", bytes(MIB))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage._replace(free=3 * MIB // 2))
    assert not store.keep("models", KEY, made)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage._replace(free=3 * MIB))
    assert store.keep("models", KEY, made)


def test_leftovers_of_killed_runs_are_removed_after_a_day(root: Path) -> None:
    names = {f".{KEY}.1.distill-tmp": 2, f".{KEY}.removed.1.distill-tmp": 2, f".{KEY}.2.distill-tmp": 0}
    cache.folder("models")
    for name, days in names.items():
        filled(root / "models" / name)
        os.utime(root / "models" / name, (time.time() - days * 86_400 - 1,) * 2)
    cache.trim()
    assert [path.name for path in (root / "models").iterdir()] == [f".{KEY}.2.distill-tmp"]


def test_an_entry_that_is_being_made_is_no_leftover_whatever_the_clock_says(root: Path) -> None:
    """A clock may jump, and a machine may sleep for a weekend."""

    def make(folder: Path) -> None:
        rows(folder)
        os.utime(folder.parent, (0, 0))
        cache.trim()

    folder = store.get_or_make("tables", KEY, make)
    assert folder == root / "tables" / KEY / cache.CONTENT
    assert (folder / "rows.arrow").read_bytes() == b"rows"


def test_a_lock_that_is_held_is_no_leftover(root: Path) -> None:
    """Of a training that takes longer than a day: another process with the same work would no longer wait for it."""
    with store.making("models", KEY, lambda end: None):
        (lock,) = (root / "locks").iterdir()
        os.utime(lock, (time.time() - 86_401,) * 2)
        cache.trim()
        assert lock.exists()
    cache.trim()
    assert not lock.exists()


def test_files_of_others_are_not_removed(root: Path, tmp_path: Path) -> None:
    """Somebody may put them into the cache, and links in it may lead to them."""
    cache.folder("models")
    own = filled(tmp_path / "own", bytes(20 * MIB))
    linked = filled(tmp_path / "linked" / OTHER, bytes(20 * MIB))
    (root / "logits").symlink_to(linked.parent)
    filled(root / "models" / "bert-base", bytes(20 * MIB))
    (root / "models" / KEY).symlink_to(own)
    (root / "tables").mkdir()
    (root / "tables" / "rows.arrow").write_bytes(bytes(20 * MIB))
    before = content(root) | content(own) | content(linked)
    cache.trim()
    assert content(root) | content(own) | content(linked) == before
    assert (root / "models" / KEY).is_symlink()


@pytest.mark.parametrize("kind", ["a model", "a link as mark"])
@pytest.mark.parametrize("given", [True, False])
def test_a_folder_with_files_of_others_becomes_no_cache(
    kind: str, given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "distill"
    filled(folder / "models" / KEY, bytes(20 * MIB))  # as a cache could have it
    if kind == "a link as mark":
        (tmp_path / "mark").touch()
        (folder / cache.MARK).symlink_to(tmp_path / "mark")
    before = content(folder)
    with cache.using(str(folder) if given else None, max_gib=MIB / 2**30):
        assert cache.note() == f"cache: {folder} has other files, so it is in {folder / cache.BELOW}"
        for number, name in enumerate(NAMES):
            assert store.keep("models", name, filled(tmp_path / name, bytes(3 * MIB // 5)))
            os.utime(folder / cache.BELOW / "models" / name, (number, number))
        assert cache.folder("tables") == folder / cache.BELOW / "tables"
        assert not store.take("models", KEY, tmp_path / "taken")
        cache.trim()
        left = [path.name for path in (folder / cache.BELOW / "models").iterdir()]
    assert left == [NAMES[-1]]
    assert {name: text for name, text in content(folder).items() if not name.startswith(cache.BELOW)} == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_the_mark_is_there_before_anything_else(root: Path, tmp_path: Path) -> None:
    made, at = filled(tmp_path / "made"), 0
    while killed(at := at + 1, tmp_path, lambda: store.keep("models", KEY, made)):
        if root.is_dir() and list(root.iterdir()):
            assert (root / cache.MARK).is_file()
            break
    assert cache.note() is None


def test_a_lock_in_a_cache_that_is_a_link_is_not_written_through(root: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("a year of work")
    cache.folder("locks")
    (root / "locks" / f"models-{KEY}").symlink_to(victim)
    with store.making("models", KEY, lambda _: pytest.fail("nothing is waited for")):
        pass
    assert victim.read_text() == "a year of work"


def as_user(number: int, umask: int, act: Callable[[], object]) -> int:
    """Start a process of another user. Returns its number."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(number)
            os.setuid(number)
            os.umask(umask)
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


@pytest.mark.skipif(not hasattr(os, "fork") or os.geteuid() != 0, reason="only root may be another user")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_users_who_may_not_change_each_others_files_share_a_cache(
    umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locks.held(tmp_path / "lock", pytest.fail):  # imports what another user may not be able to read
        pass
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        os.chmod(name, 0o777)
        monkeypatch.setattr(cache, "temporary", lambda: Path(name, f"own-{os.geteuid()}"))

        def act() -> None:
            with cache.using(Path(name, "cache")):
                for key in NAMES:
                    make, run = functools.partial(filled, content=key.encode()), Path(name, str(os.getpid()), key)
                    for folder in (store.get_or_make("tables", key, make), store.get_or_make("models", key, make, run)):
                        assert (folder / "task" / "model.safetensors").read_bytes() == key.encode()

        for number in (65_533, 65_534):  # one after the other, then at once
            assert os.waitpid(as_user(number, umask, act), 0)[1] == 0
        for key in NAMES:  # of a third user
            lock = Path(name, "cache", cache.LOCKS, f"models-{key}")
            os.chown(lock, 0, 0)
            lock.chmod(0o600)
        children = [as_user(number, umask, act) for number in (65_533, 65_534) * 2]
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4


def _make(folder: Path, name: str, made: Path) -> None:
    """Get the entry, in a folder or in place, or make it after a while: a file in `made` counts that."""

    def make(target: Path) -> None:
        time.sleep(0.5)
        (made / name).touch()
        filled(target)

    with cache.using(str(folder / "cache")):
        found = store.get_or_make("models", KEY, make, folder / name if name < "c" else None)
        assert content(found) == {"task/model.safetensors": b"weights", "manifest.json": b"{}"}


@pytest.mark.parametrize("names", ["abab", "cdcd", "abcd"])
def test_of_several_processes_one_makes_an_entry(names: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    context = multiprocessing.get_context("fork")
    every = [f"{name}{number}" for number, name in enumerate(names)]
    processes = [context.Process(target=_make, args=(tmp_path, name, made)) for name in every]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert len(list(made.iterdir())) == 1


def test_an_error_of_what_makes_an_entry_is_no_full_cache(root: Path) -> None:
    tried = []

    def make(folder: Path) -> None:
        tried.append(folder)
        raise PermissionError(errno.EACCES, "Permission denied", "rows.csv")

    with pytest.raises(PermissionError, match=r"rows\.csv"):
        store.get_or_make("tables", KEY, make)
    assert len(tried) == 1


@pytest.mark.parametrize("how", ["made", "kept"])
def test_an_entry_without_its_record_is_made_again(how: str, root: Path, tmp_path: Path) -> None:
    store.get_or_make("tables", KEY, filled)
    entry = root / "tables" / KEY
    (entry / cache.FILES).unlink()
    if how == "made":
        assert store.get_or_make("tables", KEY, filled).parent == entry
    else:
        assert store.keep("tables", KEY, filled(tmp_path / "made"))
    assert (entry / cache.FILES).is_file()


def test_a_process_that_waits_for_another_says_so(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cache.folder(cache.LOCKS)
    with locks.held(root / cache.LOCKS / f"tables-{KEY}", lambda _: None):
        waiting = threading.Thread(target=store.get_or_make, args=("tables", KEY, filled))
        waiting.start()
        waiting.join(2.0)
        assert waiting.is_alive()
        assert "another process makes what is needed here too (tables); waiting for it" in capfd.readouterr().err
    waiting.join(10.0)
    assert not waiting.is_alive()
