"""Exit codes of commands, and what they print of an error."""

from __future__ import annotations

import errno
import os

import pytest

from distill.runtime.command_line import exit_code


@pytest.mark.parametrize(
    ("number", "must"),
    [
        (errno.EACCES, "readable and writable; correct it"),
        (errno.ENOSPC, "on a disk with more free space; free some"),
        (errno.ENAMETOOLONG, "a shorter name; choose one"),
    ],
)
def test_an_error_of_a_disk_is_one_line(number: int, must: str, capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        raise OSError(number, os.strerror(number), "there")

    assert exit_code(command) == 2
    assert capsys.readouterr().err == f"there: got {os.strerror(number)}; must be {must}, then run the same command\n"


def test_another_error_of_the_system_is_raised() -> None:
    def command() -> None:
        raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))

    with pytest.raises(ConnectionResetError):
        exit_code(command)
