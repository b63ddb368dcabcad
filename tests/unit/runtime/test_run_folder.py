"""Atomic writing, and claim, lock and cleaning of run folders."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from distill.errors import ConfigError, UserError
from distill.pipeline.validation import hydra_errors
from distill.runtime.storage import atomic, cache, checksums, disk_errors, run_folder

REFUSED = "output: got {}; must be a new or empty folder, or one that a run began; set output=NEW_FOLDER"


def content(folder: Path) -> dict[str, bytes]:
    """Path -> content of every file below a folder, except the mark of a run, and hashes."""
    ours = (atomic.CLAIM, checksums.SUMS)
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in ours)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The claimed folder of a run."""
    run_folder.claim(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder of the user that no run has claimed."""
    for name in ("mine/pretrain/important.txt", "mine/.mine.tmp", "mine/.thesis.tmp/chapter.txt"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("a year of work")
    return tmp_path / "mine"


def test_a_folder_of_the_user_is_refused_and_unchanged(mine: Path) -> None:
    before = sorted(mine.rglob("*"))
    for folder in (mine, mine / "pretrain"):
        with pytest.raises(ConfigError) as refused:
            run_folder.claim(folder)
        assert refused.value.messages == [REFUSED.format(folder)]
    assert sorted(mine.rglob("*")) == before


@pytest.mark.parametrize("name", [".DS_Store", ".lock", "results.json"])
def test_any_file_makes_a_folder_not_empty(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(ConfigError, match="must be a new or empty folder"):
        run_folder.claim(tmp_path)


def test_a_run_resumes_in_the_folder_that_it_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (tmp_path / "new" / "deep", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        assert not atomic.claimed(folder)
        run_folder.claim(folder)
        assert atomic.claimed(folder)
        assert "made this folder for a run" in (folder / atomic.CLAIM).read_text()
        atomic.write_text(folder / "config.json", "{}")
        run_folder.claim(folder)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run_folder.claim(Path())
    assert atomic.claimed(tmp_path / "here")


def test_runs_that_start_at_once_share_the_claim_and_one_gets_the_lock(tmp_path: Path) -> None:
    count = 4
    both = Barrier(count)

    def start(folder: Path) -> bool:
        both.wait()
        run_folder.claim(folder)
        both.wait()
        try:
            with run_folder.locked(folder):
                both.wait()
                return True
        except ConfigError as error:
            both.wait()
            (message,) = error.messages
            assert message.startswith(f"output: got {folder}; must be used by one run at a time; wait for the other")
            return False

    with ThreadPoolExecutor(count) as pool:
        for attempt in range(5):
            assert sum(pool.map(start, [tmp_path / f"{attempt}"] * count)) == 1


def test_a_claim_by_another_process_between_check_and_mark_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Path.iterdir

    def late(folder: Path) -> Any:
        files = list(look(folder))
        (folder / atomic.CLAIM).touch()
        return iter(files)

    monkeypatch.setattr(Path, "iterdir", late)
    run_folder.claim(tmp_path / "new")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.json").touch()  # as if the other run had written it after its mark
    run_folder.claim(tmp_path / "begun")


def test_a_lock_ends_with_the_run_and_is_shared_by_its_processes(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError), run_folder.locked(run):
        raise KeyError
    with run_folder.locked(run):
        monkeypatch.setenv("RANK", "1")
        with run_folder.locked(run):
            pass


def test_a_folder_that_cannot_be_created_is_refused_in_one_line(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder in (Path("/proc/nope"), file, file / "below", tmp_path / ("x" * 300)):
        with pytest.raises(ConfigError) as refused:
            run_folder.claim(folder)
        (message,) = refused.value.messages
        assert message.startswith(f"output: got {folder}; must be a folder that can be made and written (")
        assert message.endswith("; set output=NEW_FOLDER")
    (run / run_folder.LOCK).mkdir()
    with pytest.raises(ConfigError, match="must be a folder that can be made and written"), run_folder.locked(run):
        pass


def test_a_file_in_use_that_nfs_keeps_ends_no_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS renames a removed file that a process has mapped into memory, so that its folder is not empty."""
    remove = shutil.rmtree

    def of_nfs(path: Path, ignore_errors: bool = False) -> None:
        if not (used := [*path.glob("*.npy"), *path.glob(".nfs*")]):
            return remove(path, ignore_errors)
        used[0].rename(path / ".nfs0001")
        if not ignore_errors:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))

    folder = run / "teacher.targets"
    with atomic.writing(folder) as temporary:
        (temporary / "logits.npy").write_bytes(b"of some rows")
    with monkeypatch.context() as patch:
        patch.setattr(atomic.shutil, "rmtree", of_nfs)
        with atomic.writing(folder) as temporary:
            (temporary / "new.bin").write_bytes(b"of more rows")
        run_folder.sweep(run)  # by a run that starts while the file is still in use
        assert [path.name for path in folder.iterdir()] == ["new.bin"]
        assert list(run.rglob(".nfs*"))
    run_folder.sweep(run)
    assert [path.name for path in run.iterdir() if path.is_dir()] == [folder.name]


def test_sweep_removes_only_temporary_files_of_runs(run: Path) -> None:
    kept = [".mine.tmp", ".thesis.tmp/chapter.txt", "stage/.x.1.distill-tmp.txt", "x.1.distill-tmp", ".x.distill-tmp"]
    left = [".results.json.7.distill-tmp", "stage/.order.12.distill-tmp/model.bin", ".a.1.distill-tmp/.b.1.distill-tmp"]
    for name in (*kept, *left):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("x")
    (run / "link").symlink_to(run / "stage", target_is_directory=True)
    (run / ".link.1.distill-tmp").symlink_to(run / "stage", target_is_directory=True)
    (run / ".file.1.distill-tmp").symlink_to(run / ".mine.tmp")
    run_folder.sweep(run)
    assert set(content(run)) == set(kept)
    assert [path.name for path in run.iterdir() if path.is_symlink()] == ["link"]


def test_sweep_removes_the_names_that_a_run_writes_under(run: Path) -> None:
    with atomic.writing(run / "stage") as temporary, atomic.writing_file(run / "file") as file:
        file.touch()
        (temporary / "half").touch()
        run_folder.sweep(run)
        assert not content(run)
        temporary.mkdir()
        file.parent.mkdir()
        file.touch()
    assert set(content(run)) == {"file"}


def test_temporary_names_cannot_be_known_before(run: Path, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, before = mine / "pretrain" / "important.txt", content(mine)
    for number in range(os.getpid() - 5, os.getpid() + 6):
        (run / f".config.json.{number}.distill-tmp").symlink_to(victim)
        (run / f".stage.{number}.distill-tmp").symlink_to(mine, target_is_directory=True)
    atomic.write_json(run / "config.json", {})
    with atomic.writing(run / "stage") as temporary:
        (temporary / "important.txt").write_text("new")
    assert content(mine) == before
    monkeypatch.setattr("distill.runtime.storage.atomic.secrets.randbelow", lambda most: 7)  # as if it had been guessed
    (run / f".config.json.{7:015d}.distill-tmp").symlink_to(mine, target_is_directory=True)
    with pytest.raises(FileExistsError):
        atomic.write_json(run / "config.json", {})
    assert content(mine) == before


def test_what_is_being_written_is_for_its_user_alone_and_has_the_usual_rights_afterwards(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with atomic.writing_file(tmp_path / "file") as temporary:
            assert temporary.parent.stat().st_mode & 0o777 == 0o700
            temporary.write_text("new")
        with atomic.writing(tmp_path / "folder") as folder:
            (folder / "file").write_text("new")
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "folder", "folder/file")]
    assert modes == [0o640, 0o750, 0o640]


@pytest.mark.parametrize("place", ["stage", "stage/task", "stage.state/7"])
@pytest.mark.parametrize("ours", [False, True])
def test_nothing_is_written_through_a_link_in_a_run_folder(place: str, ours: bool, run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "inner"
    if ours:
        run_folder.claim(tmp_path / "other")
    other.mkdir(parents=True)
    (other / "manifest.json").write_text("a year of work")
    before = content(tmp_path)
    for target in [other, other.parent] if ours else [other]:
        (run / place).parent.mkdir(exist_ok=True)
        (run / place).symlink_to(target, target_is_directory=True)
        with pytest.raises(
            UserError, match=r"got a symbolic link to .*move the folder itself here, or remove the link"
        ):
            atomic.write_json(run / place / "manifest.json", {})
        with pytest.raises(UserError, match="symbolic link"), atomic.writing(run / place / "new"):
            pass
        with pytest.raises(UserError, match="symbolic link"), atomic.writing(run / place):
            pass
        (run / place).unlink()
    assert content(tmp_path) == before


def test_a_run_folder_may_itself_be_a_link_and_lie_below_one(tmp_path: Path) -> None:
    run_folder.claim(tmp_path / "disk" / "run")
    (tmp_path / "outputs").symlink_to(tmp_path / "disk", target_is_directory=True)
    (tmp_path / "mine").symlink_to(tmp_path / "disk" / "run", target_is_directory=True)
    for run in (tmp_path / "outputs" / "run", tmp_path / "mine"):
        run_folder.claim(run)
        with run_folder.locked(run):
            atomic.write_json(run / "stage" / "manifest.json", {})


@pytest.mark.parametrize("name", [run_folder.LOCK, atomic.CLAIM])
def test_claim_and_lock_are_no_links(name: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("a year of work")
    run = tmp_path / "run"
    run.mkdir()
    if name == run_folder.LOCK:
        run_folder.claim(run)
    (run / name).symlink_to(victim)

    def begin() -> None:
        run_folder.claim(run)
        with run_folder.locked(run):
            pass

    with pytest.raises(ConfigError, match="output: got"):
        begin()
    assert victim.read_text() == "a year of work"


def test_a_run_in_the_folder_of_another_is_refused_either_way(run: Path, tmp_path: Path) -> None:
    atomic.write_text(run / "stage" / "manifest.json", "{}")
    (tmp_path / "linked").symlink_to(run / "stage", target_is_directory=True)
    before = content(run)
    for inner in (run / "stage", run / "new" / "deep", tmp_path / "linked" / "new"):
        with pytest.raises(ConfigError, match=r"in the folder of another run.*; set output=\S+$"):
            run_folder.claim(inner)
    run_folder.claim(tmp_path / "outer" / "inner")
    with pytest.raises(ConfigError, match="must be a new or empty folder"):
        run_folder.claim(tmp_path / "outer")
    assert content(run) == before


def test_devices_pipes_and_links_of_others_are_not_replaced(run: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(run / "pipe")
    (tmp_path / "victim").write_text("a year of work")
    (tmp_path / "link").symlink_to("victim")
    (run / "link").symlink_to("../victim")
    for path in (tmp_path / "pipe", run / "pipe", tmp_path / "link", run, Path("/dev/zero")):
        with pytest.raises(UserError, match="must be a file, or nothing, to be written"):
            atomic.write_text(path, "new")
    atomic.write_text(run / "link", "new")  # the link itself, which lies where the run may replace anything
    assert not (run / "link").is_symlink()
    assert (tmp_path / "victim").read_text() == "a year of work"


def test_only_paths_in_the_run_folder_are_removed(run: Path, mine: Path) -> None:
    for name in ("stage/order/model.bin", "stage/overlap/model.bin", "log"):
        atomic.write_text(run / name, "x")
    atomic.remove(run / "stage" / "order", run)
    atomic.remove(run / "log", run)
    atomic.remove(run / "nothing", run)
    assert set(content(run)) == {"stage/overlap/model.bin"}
    (run / "out").symlink_to(mine, target_is_directory=True)
    (run / "in").symlink_to(run / "stage", target_is_directory=True)
    (run / "stage" / "deep").symlink_to(mine, target_is_directory=True)
    before = content(mine)
    wrong = [mine, run, run / "stage" / "..", run / ".." / "mine", run / "out", run / "out" / "pretrain", Path("/")]
    for path in wrong:
        with pytest.raises(UserError, match="must lie in the run folder") as refused:
            atomic.remove(path, run)
        assert len(refused.value.messages) == 1
    with pytest.raises(ValueError, match="not the folder of a run"):
        atomic.remove(mine / "pretrain", mine)
    atomic.remove(run / "in", run)
    assert (run / "stage" / "overlap").is_dir()
    atomic.remove(run / "stage", run)
    assert not (run / "stage").exists()
    assert content(mine) == before


def test_a_folder_that_no_run_claimed_is_not_replaced(mine: Path) -> None:
    before = content(mine)
    for folder in (mine / "pretrain", mine / ".mine.tmp"):
        with pytest.raises(UserError, match="must be a new or empty folder"), atomic.writing(folder):
            pass
    with pytest.raises(OSError, match="not empty"), atomic.writing(mine / "new"):
        atomic.write_text(mine / "new" / "since", "")
    assert content(mine) == before | {"new/since": b""}


def test_a_folder_is_replaced_only_when_the_new_one_is_complete(run: Path) -> None:
    folder = run / "stage"
    with atomic.writing(folder) as temporary:
        (temporary / "old").write_text("1")
    with pytest.raises(FileNotFoundError), atomic.writing(folder) as temporary:
        (temporary / "new").write_text((temporary / "missing").read_text())
    assert content(run) == {"stage/old": b"1"}
    with atomic.writing(folder) as temporary:
        (temporary / "new").write_text("2")
    assert content(run) == {"stage/new": b"2"}
    assert not run_folder.finished(folder)
    atomic.write_json(folder / run_folder.MANIFEST, {"steps": 3})
    assert run_folder.finished(folder)
    assert atomic.read_json(folder / run_folder.MANIFEST) == {"steps": 3}


def test_nan_is_refused_and_the_old_json_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    atomic.write_json(file, {"score": 1.0})
    with pytest.raises(ValueError, match="not JSON compliant"):
        atomic.write_json(file, {"score": float("nan")})
    assert json.loads(file.read_text()) == {"score": 1.0}
    assert list(tmp_path.iterdir()) == [file]


def array(path: Path, data: bytes) -> None:
    np.save(path.with_suffix(".npy"), np.frombuffer(data, np.int8))


def weights(path: Path, data: bytes) -> None:
    save_file({"weight": torch.frombuffer(bytearray(data), dtype=torch.int8)}, path)


@pytest.mark.parametrize("write", [Path.write_bytes, atomic.write_bytes, array, weights])
def test_the_message_of_a_full_disk_has_what_was_written(run: Path, small_disk: Any, write: Any) -> None:
    folder, most = run / "stage", 3 * 2**20
    with atomic.writing(folder) as temporary:
        (temporary / "old").write_bytes(b"1")
    before = content(run)

    def again() -> None:
        with atomic.writing(folder) as temporary:
            (temporary / "first").write_bytes(bytes(2 * 2**20))
            write(temporary / "second", bytes(4 * 2**20))

    with small_disk(most), pytest.raises(disk_errors.Full) as failed:
        again()
    reason = os.strerror(errno.ENOSPC if write is array else errno.EFBIG)  # NumPy names none
    required = "on a disk with more free space; free some" if write is array else "allowed to be so large; .*"
    found = re.fullmatch(
        rf"{folder}: got {reason} after ([\d.]+) MiB of it were written; must be {required}, then run the same command",
        *(hydra_errors.messages(failed.value, []) or []),
    )
    assert found
    assert 2 <= float(found[1]) <= 5
    assert content(run) == before


def test_an_error_of_a_library_in_rust_is_one_of_the_operating_system(run: Path) -> None:
    def write() -> None:
        with atomic.writing(run / "stage"):
            raise SafetensorError("I/O error: Permission denied (os error 13)")

    with pytest.raises(PermissionError) as failed:
        write()
    assert hydra_errors.messages(failed.value, []) == [
        f"{run / 'stage'}: got Permission denied; must be readable and writable; correct it, then run the same command"
    ]


@pytest.mark.parametrize("here", [False, True])
def test_the_message_of_a_copy_that_does_not_fit_names_where_it_was_copied_to(run: Path, here: bool) -> None:
    """Python names both files of a copy."""

    def copy() -> None:
        with atomic.writing(run / "stage") as temporary:
            target = temporary / "file" if here else Path("/elsewhere/file")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/source/file", None, str(target))

    with pytest.raises(OSError, match="No space left") as failed:
        copy()
    assert failed.value.filename == str(run / "stage" if here else "/source/file")


def test_files_are_written_completely_or_not_changed(tmp_path: Path) -> None:
    arrays = {"logits": np.arange(6.0).reshape(2, 3), "rows": np.array([1, 2])}
    atomic.write_arrays(tmp_path / "new" / "scores.npz", arrays)
    with np.load(tmp_path / "new" / "scores.npz") as stored:
        assert {name: stored[name].tolist() for name in stored} == {k: v.tolist() for k, v in arrays.items()}
    atomic.write_bytes(tmp_path / "picture.png", b"\x89\r\n")
    atomic.write_text(tmp_path / "card.md", "é\n")
    before = content(tmp_path)
    assert before == before | {"picture.png": b"\x89\r\n", "card.md": b"\xc3\xa9\n"}
    for name in before:
        with pytest.raises(FileNotFoundError), atomic.writing_file(tmp_path / name) as temporary:
            temporary.write_bytes(b"half" + (tmp_path / "missing").read_bytes())
    assert content(tmp_path) == before


def test_on_windows_no_folder_is_opened_and_only_writable_files_are_flushed(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []

    def windows(path: Path, flags: int) -> int:
        assert flags == os.O_RDWR
        assert not path.is_dir(), "PermissionError on Windows"
        flushed.append(path.name)
        return real(path, flags)

    real = os.open
    monkeypatch.setattr(atomic, "_WINDOWS", True)
    monkeypatch.setattr(os, "open", windows)
    with atomic.writing(run / "stage") as temporary:
        (temporary / "model.bin").write_bytes(b"1")
    atomic.write_text(run / "results.json", "{}")
    monkeypatch.undo()
    assert [name for name in flushed if checksums.SUMS not in name] == [
        "model.bin",
        "results.json",
    ]
    assert content(run) == {"stage/model.bin": b"1", "results.json": b"{}"}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("bert-base-uncased", False),
        ("google/electra-small-discriminator", False),
        ("models/bert", False),
        ("v1.5/bert.tiny", False),
        ("models/nlp/bert", True),
        ("./bert", True),
        ("../bert", True),
        ("~/bert", True),
        ("/models", True),
        ("models/", True),
        ("models\\bert", True),
        ("C:bert", True),
        ("here.bin", True),
        ("here/too", True),
    ],
)
def test_paths_are_told_apart_from_names_on_the_hub(
    name: str, path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "too").mkdir(parents=True)
    (tmp_path / "here.bin").touch()
    monkeypatch.chdir(tmp_path)
    assert run_folder.is_path(name) is path


def test_a_name_with_a_tilde_that_is_no_user_is_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert run_folder.run_folder("prune", [], "~/x") == Path("/home/me/x")
    assert run_folder.run_folder("prune", [], "~nobody-here/x") == Path("~nobody-here/x")
    with cache.using("~nobody-here", max_gib=0):
        assert cache.root() == Path("~nobody-here")


def test_what_a_kill_left_of_a_long_name_is_removed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run_folder.claim(run)
    left = run / f".{'t' * 200}.{7:015d}.distill-tmp"
    left.mkdir()
    (left / "weights").write_text("x")
    run_folder.sweep(run)
    assert not left.exists()


def test_a_new_file_replaces_none_that_came_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"

    def late() -> None:
        with atomic.writing_file(file, new=True) as temporary:
            temporary.write_text("mine")
            file.write_text("theirs")

    with pytest.raises(UserError, match="another process wrote meanwhile"):
        late()
    assert file.read_text() == "theirs"
    file.unlink()
    with atomic.writing_file(file, new=True) as temporary:
        temporary.write_text("mine")
    assert (file.read_text(), file.stat().st_nlink, [*tmp_path.iterdir()]) == ("mine", 1, [file])


@pytest.mark.parametrize("setting", ["report.hourly_rate=2", "report.purpose=once more"])
def test_what_a_report_adds_to_the_numbers_of_a_run_needs_no_other_run(setting: str) -> None:
    same = [run_folder.run_folder("prune", ["seed=1", *more], None) for more in ([], [setting])]
    assert same[0] == same[1]
