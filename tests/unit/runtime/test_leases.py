"""Leases: one owner at a time, who keeps it as long as it is renewed; what was not renewed is taken over."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from distill.runtime.storage.leases import Leases


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still: the sum of the list is added to the time."""
    passed = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: sum(passed))
    return passed


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    one, other = Leases(tmp_path / "leases", 60), Leases(tmp_path / "leases", 60)
    assert one.take("a") == "new"
    assert other.take("a") is None
    assert other.take("b") == "new"
    one.release("a")
    assert other.take("a") == "new"


def test_a_lease_that_was_not_renewed_is_taken_over_once(tmp_path: Path, later: list[float]) -> None:
    gone, *others = (Leases(tmp_path, 60) for _ in range(3))
    gone.take("a")
    assert [each.take("a") for each in others] == [None, None]
    later.append(59)
    assert [each.take("a") for each in others] == [None, None]
    later.append(1)
    assert [each.take("a") for each in others] == [None, None]  # this process may have stood still too
    later.append(14)
    assert [each.take("a") for each in others] == [None, None]
    later.append(1)
    assert [each.take("a") for each in others] == ["expired", None]
    gone.release("a")  # it has lost it
    assert (tmp_path / "a").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def renew(one: Leases, name: str) -> None:
    """Renew a lease once."""
    one._renew(one.folder / name)


def test_a_lease_that_looked_expired_and_was_renewed_is_not_taken(tmp_path: Path, later: list[float]) -> None:
    one, other = Leases(tmp_path, 60), Leases(tmp_path, 60)
    one.take("a")
    assert other.take("a") is None
    later.append(60)
    assert other.take("a") is None
    renew(one, "a")  # the host stood still with all its processes, and goes on
    later.append(15)
    assert other.take("a") is None
    later.append(59)
    assert other.take("a") is None
    assert one._mine((tmp_path / "a").read_bytes())


def test_the_time_is_that_of_the_lease(tmp_path: Path, later: list[float]) -> None:
    slow, hasty = Leases(tmp_path, 600), Leases(tmp_path, 1)
    slow.take("a")
    assert hasty.take("a") is None
    later.append(599)
    assert hasty.take("a") is None
    later.append(1)
    assert hasty.take("a") is None
    later.append(150)
    assert hasty.take("a") == "expired"
    for content in (b"", b"x y inf", b"x y -1", b"x y 1e9"):  # its owner ended before it wrote it, or it is no lease
        (tmp_path / "b").write_bytes(content)
        assert hasty.take("b") is None
        later.append(1)
        assert hasty.take("b") is None
        later.append(1)
        assert hasty.take("b") == "expired"
        (tmp_path / "b").unlink()


def test_a_lease_is_renewed_in_place(tmp_path: Path) -> None:
    one, other = Leases(tmp_path, 60), Leases(tmp_path, 60)
    one.take("a")
    before, file = (tmp_path / "a").read_bytes(), (tmp_path / "a").stat().st_ino
    renew(one, "a")
    after = (tmp_path / "a").read_bytes()
    assert (after != before, len(after)) == (True, len(before))
    assert (tmp_path / "a").stat().st_ino == file
    renew(other, "a")
    assert (tmp_path / "a").read_bytes() == after


def test_a_lease_that_cannot_be_written_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Leases(tmp_path, 60)

    def full() -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(one, "_content", full)
    with pytest.raises(OSError, match="No space"):
        one.take("a")
    assert not [*tmp_path.iterdir()]


def test_a_renewed_lease_is_kept_and_given_back(tmp_path: Path) -> None:
    one, other = Leases(tmp_path, 0.2), Leases(tmp_path, 0.2)
    assert one.take("a") == "new"
    with one.renewed("a"):
        until = time.monotonic() + 1
        while time.monotonic() < until:
            assert other.take("a") is None
            time.sleep(0.02)
    assert other.take("a") == "new"


def test_what_a_process_has_just_taken_is_given_back_when_it_is_told_to_end(tmp_path: Path) -> None:
    first, other = Leases(tmp_path, 60), Leases(tmp_path, 60)
    assert other.take("b") == "new"

    def told_to_end() -> None:
        with first.all_returned():
            assert first.take("a") == "new"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        told_to_end()
    assert [path.name for path in tmp_path.iterdir()] == ["b"], "the other's is as it was"
    assert other.take("a") == "new"


def test_a_lease_that_was_renewed_between_look_and_removal_is_put_back(tmp_path: Path, later: list[float]) -> None:
    one, other = Leases(tmp_path, 60), Leases(tmp_path, 60)
    one.take("a")
    seen = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(one._content())
    assert not other._removed(tmp_path / "a", seen)
    one.release("a")
    assert not [*tmp_path.iterdir()]


def test_many_threads_never_share_an_expired_lease(tmp_path: Path, later: list[float]) -> None:
    gone, others = Leases(tmp_path, 60), [Leases(tmp_path, 60) for _ in range(8)]
    for number in range(20):
        name = f"unit{number}"
        gone.take(name)
        for each in others:
            each.take(name)
        later.append(60)
        assert [each.take(name) for each in others] == [None] * 8
        later.append(60)
        threads = [threading.Thread(target=each.take, args=(name,)) for each in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len([each for each in others if each._mine((tmp_path / name).read_bytes())]) == 1
