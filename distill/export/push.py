"""Exported folders, put on the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from distill.errors import ConfigError, UserError


def repositories(repo: str, folders: Mapping[str, Path]) -> dict[str, Path]:
    """Repository -> folder. A single folder goes to `repo`, one of several to `repo-NAME`: `me/student-2x-cola`."""
    if len(folders) == 1:
        return {repo: next(iter(folders.values()))}
    return {f"{repo}-{re.sub(r'[^A-Za-z0-9.]+', '-', name)}": folder for name, folder in folders.items()}


def create(repos: Mapping[str, Path]) -> None:
    """Make the repositories that are not there: what may not be written to is found before anything is trained.

    ConfigError where one cannot be made.
    """
    from huggingface_hub import HfApi

    for repo in repos:
        with _reached(repo, ConfigError, "log in with `hf auth login`, or choose another"):
            HfApi().create_repo(repo, exist_ok=True)


def upload(repos: Mapping[str, Path], message: str) -> dict[str, str]:
    """Put each folder into its repository in one commit; what is equal there is not sent again.

    Returns what it is -> its address. UserError where one cannot be sent.
    """
    from huggingface_hub import HfApi

    sent = {}
    for repo, folder in repos.items():
        with _reached(repo, UserError, "run the same command again: nothing else is done twice"):
            commit = HfApi().upload_folder(repo_id=repo, folder_path=folder, commit_message=message)
        sent[f"on the hub ({repo})"] = str(commit.repo_url)
    return sent


@contextmanager
def _reached(repo: str, kind: Callable[[str], UserError], advice: str) -> Iterator[None]:
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined] # of the client it uses

    try:
        yield
    except (HTTPError, OSError, ValueError, RuntimeError) as error:
        # A large file's trouble is told as a RuntimeError that says only which file it was.
        cause = (error.__cause__ or error) if isinstance(error, RuntimeError) else error
        reason = " ".join(str(cause).split())[:300] or type(cause).__name__
        raise kind(
            f"push: got {repo}; must be a repository on the Hugging Face hub that you may write to ({reason}); {advice}"
        ) from error
