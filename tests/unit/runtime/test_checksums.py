"""Files of a run that are no longer as they were written are found, and made again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from distill.errors import UserError
from distill.runtime.storage import atomic, checksums, run_folder


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """The folder of a run that is active, with a finished step of two models, states, and measurements."""
    folder = tmp_path / "run"
    run_folder.claim(folder)
    with run_folder.locked(folder):
        fill(folder)
        yield folder


def fill(folder: Path) -> None:
    for model in ("finetune/a", "finetune/b", "pretrain.state/4", "pretrain.state/5"):
        with atomic.writing(folder / model) as temporary:
            (temporary / "weights").write_bytes(model.encode() * 50)
            (temporary / "inside").mkdir()
            atomic.write_json(temporary / "inside" / "config.json", {"model": model})
            (temporary / "README.md").write_text("a card")
            atomic.write_json(temporary / run_folder.MANIFEST, {"steps": 3})
    atomic.write_json(folder / "finetune" / run_folder.MANIFEST, {"models": 2})
    atomic.write_json(folder / "times.json", {"ms": 4.5})
    atomic.write_json(folder / "times.json", {"ms": 5.5})


def files(folder: Path) -> set[str]:
    ours = (atomic.CLAIM, run_folder.LOCK, checksums.SUMS)
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.name not in ours}


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def cut(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


AGAIN = "{}: not as it was written; {} is removed, and made again if it is needed"
DAMAGE: dict[str, Callable[[Path], Any]] = {
    "a flipped bit": flip,
    "cut short": cut,
    "empty": lambda file: file.write_bytes(b""),
}


def test_what_is_as_it_was_written_stays(run: Path) -> None:
    before = files(run)
    (run / "finetune" / "a" / "README.md").write_text("the user's own card")
    assert run_folder.mend(run) == []
    assert files(run) == before


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("file", ["weights", "inside/config.json", run_folder.MANIFEST])
def test_a_model_with_a_damaged_file_is_removed_and_its_step_is_not_finished(damage: str, file: str, run: Path) -> None:
    before = files(run)
    DAMAGE[damage](run / "finetune" / "a" / file)
    assert run_folder.mend(run) == [AGAIN.format(f"finetune/a/{file}", "finetune/a")]
    gone = {path for path in before if path.startswith("finetune/a/")} | {f"finetune/{run_folder.MANIFEST}"}
    assert files(run) == before - gone
    assert run_folder.mend(run) == []


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("file", ["times.json", f"finetune/{run_folder.MANIFEST}"])
def test_of_files_that_were_written_one_by_one_the_damaged_one_is_removed(damage: str, file: str, run: Path) -> None:
    before = files(run)
    DAMAGE[damage](run / file)
    assert checksums.changed(run / file)
    assert run_folder.mend(run) == [AGAIN.format(file, file)]
    assert files(run) == before - {file}


@pytest.mark.parametrize(
    ("file", "lost"),
    [
        ("finetune/a/weights", "finetune/a"),
        ("times.json", "times.json"),
        (f"finetune/a/{checksums.SUMS}", f"finetune/a/{checksums.SUMS}"),
    ],
)
def test_a_file_that_cannot_be_read_is_not_damaged(
    file: str, lost: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network may be down. Without the message, what is whole would be removed."""
    before = files(run)

    def failing(way: Any) -> Any:
        def opened(path: Path, *given: Any, **named: Any) -> Any:
            if path == run / file:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return way(path, *given, **named)

        return opened

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", failing(Path.open))
        patched.setattr(Path, "read_text", failing(Path.read_text))
        with pytest.raises(
            UserError, match=f"{file}: got Input/output error; must be readable; correct it, or remove {run / lost} to"
        ):
            run_folder.mend(run)
    assert files(run) == before
    assert run_folder.mend(run) == []


@pytest.mark.parametrize("file", ["times.json", "finetune/a/weights"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(file: str, run: Path) -> None:
    (run / file).unlink()
    os.mkfifo(run / file)
    (line,) = run_folder.mend(run)
    assert line.startswith(f"{file}: not as it was written")
    assert not (run / file).exists()


def test_a_pipe_in_the_place_of_the_hashes_is_not_waited_for(run: Path) -> None:
    (run / checksums.SUMS).unlink()
    os.mkfifo(run / checksums.SUMS)
    run_folder.mend(run)
    with pytest.raises(UserError, match="got a pipe; must be a file, or nothing, to be written"):
        atomic.write_json(run / "times.json", {"ms": 6.5})


def test_a_file_that_was_removed_is_not_damaged(run: Path) -> None:
    for file in ("times.json", "finetune/a/weights"):
        (run / file).unlink()
    assert run_folder.mend(run) == []
    assert (run / "finetune" / run_folder.MANIFEST).is_file()


def test_the_newest_state_is_removed_and_the_one_before_stays(run: Path) -> None:
    flip(run / "pretrain.state" / "5" / "weights")
    assert len(run_folder.mend(run)) == 1
    assert [path.name for path in (run / "pretrain.state").iterdir()] == ["4"]


def test_without_the_weights_of_the_best_moment_the_training_starts_again(run: Path) -> None:
    before = files(run)
    with atomic.writing(run / "pretrain.state" / run_folder.BEST) as temporary:
        (temporary / "weights").write_text("0123456789")
    flip(run / "pretrain.state" / run_folder.BEST / "weights")
    assert run_folder.mend(run) == [AGAIN.format("pretrain.state/best/weights", "pretrain.state")]
    assert files(run) == {path for path in before if not path.startswith("pretrain.state/")}


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("file", ["times.json", f"finetune/{run_folder.MANIFEST}", "pretrain.state/5/manifest.json"])
def test_a_run_that_is_killed_while_it_writes_a_file_damages_nothing(file: str, replaced: bool, run: Path) -> None:
    for number in range(3):  # killed again and again
        new = run / file.replace(".json", ".new")
        new.write_text(f'{{"number": {number}}}')
        checksums.note(run / file, new, atomic.write_json)
        new.replace(run / file) if replaced else new.unlink()
        assert run_folder.mend(run) == []
    assert all(len(known) <= 2 for known in checksums._read((run / file).parent)["files"].values())  # type: ignore[index]


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_hashes_are_removed_alone(damage: str, place: float, run: Path) -> None:
    before = files(run)
    sums = run / "finetune" / "a" / checksums.SUMS
    if damage == "a flipped bit":  # wherever it is, in a hash too
        content = bytearray(sums.read_bytes())
        content[int(place * len(content))] ^= 1
        sums.write_bytes(content)
    else:
        DAMAGE[damage](sums)
    assert run_folder.mend(run) == [
        "finetune/a/.sha256: not as it was written; removed, and the files beside it are not checked"
    ]
    assert files(run) == before
    atomic.write_json(run / "finetune" / "a" / run_folder.MANIFEST, {"steps": 4})
    assert run_folder.mend(run) == []


def test_what_other_commands_write_into_a_run_folder_is_the_users(run: Path) -> None:
    (run.parent / "other").mkdir()
    run_folder.claim(run.parent / "other" / "run")
    atomic.write_text(run.parent / "other" / "run" / "predictions.csv", "a")
    (run.parent / "other" / "run" / "predictions.csv").write_text("b")
    assert run_folder.mend(run.parent / "other" / "run") == []
    assert not (run.parent / "other" / "run" / checksums.SUMS).exists()


def test_a_run_inside_of_a_run_folder_is_left_alone(run: Path) -> None:
    inner = run / "inner"
    inner.mkdir()
    (inner / atomic.CLAIM).touch()  # by an earlier version, which claimed folders within those of other runs
    with run_folder.locked(inner):
        fill(inner)
    flip(inner / "times.json")
    assert run_folder.mend(run) == []
    assert run_folder.mend(inner) == [AGAIN.format("times.json", "times.json")]


def test_a_step_is_not_finished_while_its_damaged_model_is_removed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(run / "finetune" / "a" / "weights")
    with monkeypatch.context() as patch:
        patch.setattr(atomic.shutil, "rmtree", lambda path, **_: None if _ else killed())
        with pytest.raises(OSError, match="killed"):
            run_folder.mend(run)
    assert not run_folder.finished(run / "finetune")
    assert not (run / "finetune" / "a").exists()
    run_folder.sweep(run)
    assert [path.name for path in (run / "finetune").iterdir() if path.is_dir()] == ["b"]


def killed() -> None:
    raise OSError("killed")


def test_outside_of_run_folders_there_are_no_hashes(tmp_path: Path) -> None:
    with atomic.writing(tmp_path / "folder") as temporary:
        (temporary / "file").write_text("x")
    atomic.write_text(tmp_path / "file", "x")
    assert not list(tmp_path.rglob(checksums.SUMS))


def test_links_are_not_followed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / checksums.SUMS).write_text('{"whole": true, "files": {"x": []}}')
    (run / "link").symlink_to(tmp_path / "mine")
    assert run_folder.mend(run) == []
    assert (tmp_path / "mine" / checksums.SUMS).is_file()


@pytest.mark.parametrize("content", ["[" * 200_000, '{"files": ' + "[" * 200_000, "\0" * 9])
def test_sums_of_any_content_are_damaged_ones(content: str, tmp_path: Path) -> None:
    (tmp_path / checksums.SUMS).write_text(content)
    assert checksums._read(tmp_path) is None
