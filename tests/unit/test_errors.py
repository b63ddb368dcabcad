"""What is printed for users."""

from __future__ import annotations

import signal

import pytest

from distill.errors import (
    SIGNALS,
    ConfigError,
    DataError,
    Problem,
    Stopped,
    UserError,
    discreet,
    listening,
    printable,
    printable_lines,
    refuse,
    reworded,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ein Größe 大 😀, 'x' \\n", "ein Größe 大 😀, 'x' \\n"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("a\rb\nc\td", "a\\rb\\nc\\td"),
        ("safe\u202egpj.exe", "safe\\u202egpj.exe"),
        ("\x9b31m \udc80", "\\x9b31m \\udc80"),
    ],
)
def test_a_message_has_no_characters_that_a_terminal_acts_on(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert DataError([f"rows.csv: got {text}"]).messages == [f"rows.csv: got {shown}"]
    assert printable(shown) == shown


def test_lines_stay_lines() -> None:
    assert printable_lines("a\x1b\n\nb\n") == "a\\x1b\n\nb\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("tasks.train=https://host/a.csv?X-Sig=ab%2F&t=1", "tasks.train=https://host/a.csv?..."),
        ("tasks.train=['s3://a/b.csv?k=v','s3://a/c.csv?k=w']", "tasks.train=['s3://a/b.csv?...','s3://a/c.csv?...']"),
        ("tasks.train=ftp://me:pass@host/a.csv", "tasks.train=ftp://...@host/a.csv"),
        ("a=https://h/a.csv?sv=1&spr=https,http&x=[1];2&sig=S", "a=https://h/a.csv?..."),
        ("a=[s3://a/b.csv?k=v,s3://a/c.csv?k=w]", "a=[s3://a/b.csv?...,s3://a/c.csv?...]"),
        ("a: got https://h/a.csv?sig=S; must be b", "a: got https://h/a.csv?...; must be b"),
        ("ftp://me:p@ss@h/a and https://token@h/a", "ftp://...@h/a and https://...@h/a"),
        ("abfs://rows@account.host/a.csv", "abfs://rows@account.host/a.csv"),
        ("tasks.train=s3://rows/part-?.csv", "tasks.train=s3://rows/part-?.csv"),
        ("s3://rows/part-?/year=2024/*.csv", "s3://rows/part-?/year=2024/*.csv"),
        ("write to me@example.org: is a=b?", "write to me@example.org: is a=b?"),
        ("hf://datasets/org/name@main/a.csv", "hf://datasets/org/name@main/a.csv"),
    ],
)
def test_secrets_in_addresses_are_not_shown(text: str, shown: str) -> None:
    assert discreet(text) == shown
    assert DataError(text).messages == [shown]


def test_all_problems_are_raised_together_and_none_if_there_are_none() -> None:
    refuse([])
    with pytest.raises(ConfigError) as caught:
        refuse(["a", Problem("seed", -1, "be >= 0", "set it")])
    assert caught.value.messages == ["a", "seed: got -1; must be >= 0; set it"]


@pytest.mark.parametrize(("error", "changed"), [(ConfigError, True), (DataError, False), (Stopped, False)])
def test_errors_of_one_kind_are_reworded(error: type[UserError], changed: bool) -> None:
    with pytest.raises(error) as caught, reworded(str.upper, ConfigError):
        raise error(["a", "b"])
    assert caught.value.messages == (["A", "B"] if changed else ["a", "b"])
    assert type(caught.value) is error


def test_a_problem_about_a_list_is_hashed() -> None:
    problems = [Problem("tasks.labels", ["a"], "be others", "leave it out") for _ in range(2)]
    assert list(dict.fromkeys(problems)) == problems[:1]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("://" * 100_000, "://" * 100_000),
        ("https://" + "a" * 900_000, "https://" + "a" * 900_000),
        ("ftp://x?b=1 " * 20_000, "ftp://x?... " * 20_000),
    ],
    ids=["no address", "one address", "many addresses"],
)
def test_long_texts_of_addresses_are_read_once(text: str, shown: str) -> None:
    """The first took minutes."""
    assert discreet(text) == shown


def test_signals_end_a_command_as_ctrl_c_does_and_are_put_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(KeyboardInterrupt) as ended, listening():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.number == signal.SIGTERM  # type: ignore[attr-defined]
    assert [signal.getsignal(number) for number in SIGNALS] == before
