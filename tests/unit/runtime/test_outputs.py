"""Where commands may write: never over another's file, a device, a link or their own input."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from pathlib import Path

import pytest

from distill.cli import label
from distill.cli.compare import command as compare
from distill.errors import ConfigError
from distill.runtime.storage import outputs
from distill.runtime.storage.atomic import write_text


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(given: str, **more: object) -> str:
    with pytest.raises(ConfigError) as error:
        outputs.checked(given, "--output", **more)  # type: ignore[arg-type]
    return str(error.value)


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_names_of_standard_output(name: str) -> None:
    assert outputs.checked(name, "--output") is None


def test_a_new_file_may_be_written_anywhere() -> None:
    Path("real").mkdir()
    Path("linked").symlink_to("real")
    for name in ("new.csv", "not/yet/there.csv", "linked/new.csv", "-.csv"):
        assert outputs.checked(name, "--output") == Path(name)
    assert outputs.checked("-", "--html", stdout=False) == Path("-")


def test_a_tilde_that_the_shell_left_is_the_home_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert outputs.checked("~/new.csv", "--output") == Path("/home/me/new.csv")
    assert label._parser().parse_args(["bert", "rows.csv", "--out=~/labels"]).out == Path("/home/me/labels")
    assert compare._parser().parse_args(["a", "b", "rows.csv", "--output=~/x"]).output == Path("/home/me/x")
    for name in ("~", "~new.csv", "./~/new.csv", "new/~/x.csv"):
        assert outputs.at_home(name) == Path(name)


def test_what_is_no_file_is_refused_and_the_advice_works_in_a_shell() -> None:
    os.mkfifo("a pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    Path("folder").mkdir()
    Path("old.csv").write_text("old")
    for link, target in (("link.csv", "old.csv"), ("dangling.csv", "nothing.csv"), ("stdout", "/proc/self/fd/1")):
        Path(link).symlink_to(target)
    wanted = {
        "/dev/zero": ("a device", "-"),
        "a pipe": ("a pipe", "-"),
        "socket": ("a socket", "-"),
        "folder": ("a folder", "folder/output.jsonl"),
        "new/": ("a folder", "new/output.jsonl"),
        "": ("an empty name", "-"),
        ".": ("a folder", "output.jsonl"),
        "link.csv": ("a symbolic link", str(Path("old-2.csv").resolve())),
        "dangling.csv": ("a symbolic link", str(Path("nothing.csv").resolve())),
        "stdout": ("a symbolic link", "-"),
        "old.csv/new.csv": ("is none", "new.csv"),
    }
    for name, (what, instead) in wanted.items():
        message = refused(name)
        assert what in message, message
        assert shlex.split(message.rpartition("; set ")[2].replace("=-", " -"))[:2] == ["--output", instead]
    overwriting = {name: refused(name, overwrite=True).rpartition(" ")[2] for name in wanted}
    assert overwriting["link.csv"] == str(Path("old.csv").resolve())
    assert refused("a pipe").endswith("set --output=- > 'a pipe'")
    typed = refused("a pipe").rpartition("set ")[2].partition(" > ")[0]
    shown = subprocess.run(["bash", "-c", f"printf '[%s]' {typed}"], check=True, capture_output=True, text=True).stdout
    assert shown == "[--output=-]"


def test_the_null_device_takes_everything_and_stays() -> None:
    assert outputs.checked("/dev/null", "--output") == Path("/dev/null")
    before = os.lstat("/dev/null")
    for _ in range(2):
        write_text(Path("/dev/null"), "gone")
    assert os.lstat("/dev/null").st_ino == before.st_ino
    Path("link").symlink_to("/dev/null")
    assert "a symbolic link" in refused("link", overwrite=True)


def test_an_existing_file_is_replaced_only_if_the_user_says_so() -> None:
    Path("old it's.csv").write_text("old")
    Path("old it's-2.csv").write_text("older")
    message = refused("old it's.csv")
    assert "add --overwrite" in message
    assert shlex.split(message.rpartition("set ")[2]) == ["--output", "old it's-3.csv"]
    assert outputs.checked("old it's.csv", "--output", overwrite=True) == Path("old it's.csv")


def test_an_input_is_never_replaced_however_it_is_spelt() -> None:
    folder = Path("data here")
    folder.mkdir()
    file = folder / "rows.csv"
    file.write_text("text\n")
    os.link(file, "hard.csv")
    Path("there").symlink_to(folder)
    url = file.resolve().as_uri()
    assert "%20" in url
    spellings = [
        "data here/rows.csv",
        "./data here/../data here/rows.csv",
        str(file.resolve()),
        "data here/*.csv",
        "**/*.csv",
        url,
        f"file://{file.resolve()}",
        f"file://{folder.resolve()}/r*.csv",
        f"simplecache::file://{file.resolve()}",
        "data here",
        "there/rows.csv",
    ]
    for spelling in spellings:
        for output in (str(file), "hard.csv", "there/rows.csv"):
            if spelling in ("data here",) and output == "hard.csv":
                continue
            message = refused(output, inputs=[spelling], overwrite=True)
            assert "which the command reads" in message
    assert outputs.checked("data here/other.jsonl", "--output", inputs=spellings) is not None


def test_a_new_file_that_the_same_command_would_read_the_next_time_is_refused() -> None:
    Path("data").mkdir()
    Path("data/may.csv").write_text("text\n")
    for pattern in ("data/*.csv", "./data/*", "data/../data/[a-z]*.csv", "**/*.csv", "data/**/*.csv"):
        typed = shlex.split(refused("data/out.csv", inputs=[pattern]).rpartition("set ")[2])
        assert outputs.checked(typed[1], "--output", inputs=[pattern] if "**" not in pattern else []) is not None
        assert outputs.checked("data/deeper/out.jsonl", "--output", inputs=[pattern]) is not None
    assert outputs.checked("data/out.csv", "--output", inputs=["data/m*.csv", "may[1].csv"]) is not None


def test_own_files_are_replaced_and_those_of_others_are_not() -> None:
    folder = Path("project")
    folder.mkdir()
    (folder / "notes.md").write_text("a year of work")
    outputs.write_all(folder, {"report.md": b"one", "page.html": b"one"}, "FOLDER")
    outputs.write_all(folder, {"report.md": b"two", "page.html": b"two"}, "FOLDER")
    outputs.write_all(folder, {"other.md": b"one"}, "FOLDER")
    outputs.write_all(folder, {"report.md": b"three"}, "FOLDER")
    assert (folder / "report.md").read_bytes() == b"three"
    (folder / "page.html").write_text("changed by hand")
    for name in ("page.html", "notes.md"):
        before = (folder / name).read_bytes()
        with pytest.raises(ConfigError, match=f"{name}.*--overwrite"):
            outputs.write_all(folder, {"report.md": b"four", name: b"four"}, "FOLDER")
        assert (folder / "report.md").read_bytes() == b"three", "all files are written or none"
        assert (folder / name).read_bytes() == before
    outputs.write_all(folder, {"notes.md": b"five"}, "FOLDER", overwrite=True)
    outputs.write_all(folder, {"notes.md": b"six"}, "FOLDER")


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_a_process_killed_between_the_files_can_write_them_again(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("out")
    for content in (b"one", b"two"):
        calls, real = [0], outputs.write_bytes

        def stopping(path: Path, data: bytes, calls: list[int] = calls, real: object = real) -> None:
            if calls[0] == at:
                raise KeyboardInterrupt
            calls[0] += 1
            real(path, data)  # type: ignore[operator]

        with monkeypatch.context() as patched:
            patched.setattr(outputs, "write_bytes", stopping)
            try:
                outputs.write_all(folder, {"a": content, "b": content, "c": content}, "FOLDER")
            except KeyboardInterrupt:
                pass
        outputs.write_all(folder, {"a": content, "b": content, "c": content}, "FOLDER")
        assert {name: (folder / name).read_bytes() for name in "abc"} == dict.fromkeys("abc", content)


@pytest.mark.parametrize("mark", ["[]", "{", '{"report.md": 3}', "\x00", None])
def test_a_damaged_mark_makes_nothing_ours(mark: str | None) -> None:
    folder = Path("out")
    outputs.write_all(folder, {"report.md": b"one"}, "FOLDER")
    file = folder / outputs.MARK
    file.unlink()
    if mark is None:
        Path("elsewhere").write_text("{}")
        file.symlink_to("../elsewhere")
    else:
        file.write_text(mark)
    with pytest.raises(ConfigError):
        outputs.write_all(folder, {"report.md": b"two"}, "FOLDER")
    assert (folder / "report.md").read_bytes() == b"one"


def test_links_and_devices_in_a_folder_are_never_replaced() -> None:
    folder = Path("out")
    folder.mkdir()
    Path("victim").write_text("a year of work")
    (folder / "report.md").symlink_to("../victim")
    os.mkfifo(folder / "page.html")
    for name in ("report.md", "page.html"):
        with pytest.raises(ConfigError, match=r"got a (symbolic link|pipe)"):
            outputs.write_all(folder, {name: b"new"}, "FOLDER", overwrite=True)
    assert Path("victim").read_text() == "a year of work"
    assert (folder / "report.md").is_symlink()
    with pytest.raises(ConfigError, match="is none"):
        outputs.write_all(Path("victim"), {"report.md": b"new"}, "FOLDER")


def test_a_name_with_brackets_is_a_name() -> None:
    Path("rows[v2].csv").write_text("text")
    assert outputs.checked("rows2.csv", "--output", inputs=["rows[v2].csv"]) == Path("rows2.csv")
    with pytest.raises(ConfigError, match="which the command reads"):
        outputs.checked("rows[v2].csv", "--output", inputs=["rows[v2].csv"], overwrite=True)


def test_after_two_kills_the_file_is_still_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("out")
    outputs.write_all(folder, {"a": b"old"}, "FOLDER")
    for content in (b"one", b"two"):
        with monkeypatch.context() as patched:
            patched.setattr(outputs, "write_bytes", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                outputs.write_all(folder, {"a": content}, "FOLDER")
    outputs.write_all(folder, {"a": b"three"}, "FOLDER")
    assert (folder / "a").read_bytes() == b"three"


def test_a_mark_that_is_too_deep_makes_nothing_ours() -> None:
    Path("out").mkdir()
    (Path("out") / outputs.MARK).write_text("[" * 100_000)
    Path("out", "a").write_text("mine")
    with pytest.raises(ConfigError, match="not written by this command"):
        outputs.write_all(Path("out"), {"a": b"x"}, "FOLDER")
