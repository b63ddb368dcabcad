"""Exported folders, put on the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from distill.config import Config
from distill.errors import ConfigError, UserError
from distill.plan import EMBEDDER, embeds


def exported(config: Config, tasks: Sequence[str]) -> dict[str, str]:
    """Name -> folder, below that of the run, of all that is exported: `2x-cola` -> `export/2x/cola`.

    A stage called `export`, or `export_NAME`, is called nothing, or NAME, in it.
    """
    found = {}
    for stage in (name for name in config.pipeline if config.stages[name].kind == "export"):
        for model in [EMBEDDER] if embeds(config, stage) else tasks:
            parts = [re.sub(r"[^A-Za-z0-9.]+", "-", part) for part in f"{stage}/{model}".split("/")]
            parts[0] = parts[0].removeprefix("export").strip("-")
            found["-".join(dict.fromkeys(filter(None, parts)))] = f"{stage}/{model}"
    return found


def repositories(repo: str, folders: Mapping[str, str]) -> dict[str, str]:
    """Repository -> folder. A single folder goes to `repo`, one of several to `repo-NAME`: `me/student-2x-cola`."""
    return {repo if len(folders) == 1 else f"{repo}-{name}": folder for name, folder in folders.items()}


def create(repos: Iterable[str]) -> None:
    """Make the repositories that are not there: what may not be written to is found before anything is trained.

    ConfigError where one cannot be made, or written to.
    """
    from huggingface_hub import HfApi

    for repo in repos:
        with _reached(repo, ConfigError, "log in with `hf auth login`, or choose another"):
            HfApi().create_repo(repo, exist_ok=True)
            HfApi().auth_check(repo, write=True)  # one that is there already is "made" if it can be read


def upload(repos: Mapping[str, Path], message: str) -> dict[str, str]:
    """Make each repository what the folder is: other files of an earlier model go, equal ones are not sent again.

    Returns what it is -> its address. UserError where one cannot be sent.
    """
    from huggingface_hub import HfApi

    sent = {}
    for repo, folder in repos.items():
        with _reached(repo, UserError, "run the same command again: nothing else is done twice"):
            commit = HfApi().upload_folder(
                repo_id=repo, folder_path=folder, commit_message=message, delete_patterns="*"
            )
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
