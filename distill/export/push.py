"""Upload of exported folders to the Hugging Face hub.

Every upload also writes `MARKER`, the list of the files that it put into the repository. Only listed files are ever
replaced or deleted: a repository with any other file, `HUB_FILES` aside, is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from distill.checkpoint import read_json
from distill.config import Export
from distill.errors import ConfigError, UserError
from distill.plan import EMBEDDER, Plan

MARKER = "distill_export.json"
"""File in a repository with the names of all files that an upload put there."""
HUB_FILES = frozenset({".gitattributes"})
"""Files that the hub itself puts into a new repository. They are left alone."""
SHOWN = 3
"""Most files that an error names."""


@dataclass(frozen=True)
class Repository:
    """A repository on the hub at one commit."""

    name: str
    commit: str | None = None
    private: bool = True
    files: frozenset[str] = frozenset()
    listed: frozenset[str] = frozenset()
    """Files of earlier uploads: those that `MARKER` lists, and `MARKER`."""

    @property
    def visibility(self) -> str:
        return "private" if self.private else "public"


def exported(plan: Plan, tasks: Sequence[str]) -> dict[str, str]:
    """Name -> path, relative to the run folder, of every exported folder: `2x-cola` -> `export/2x/cola`.

    A name leaves out `export` at the start of the stage's: `export_embedder/embedder` is `embedder`.
    """
    names = {}
    for step in plan.of(Export):
        for model in [EMBEDDER] if step.embeds else tasks:
            parts = [step.stage.removeprefix("export"), step.target, model]
            clean = [re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-") for part in parts]
            names["-".join(dict.fromkeys(filter(None, clean)))] = f"{step.folder}/{model}"
    return names


def repositories(repo: str, folders: Mapping[str, str]) -> dict[str, str]:
    """Repository -> folder: `repo` for a single folder, `repo-NAME` for each of several, as `me/student-2x-cola`."""
    return {repo if len(folders) == 1 else f"{repo}-{name}": folder for name, folder in folders.items()}


def create(repos: Iterable[str], private: bool = True) -> dict[str, str]:
    """Make the repositories that do not exist, private or public, before anything is trained.

    A repository that exists keeps its visibility. Nothing is made where any repository is refused.

    Returns:
        repository -> `private` or `public`.

    Raises:
        ConfigError: for a repository that holds files which no upload of distill put there, one line for each; and for
            one that cannot be made or written to.
    """
    from huggingface_hub import HfApi

    names, advice = list(repos), "log in with `hf auth login`, or choose another"
    present: dict[str, Repository] = {}
    for name in names:
        with _reached(name, ConfigError, advice):
            present[name] = _look(name)
    if foreign := [line for repository in present.values() for line in _foreign(repository)]:
        raise ConfigError(foreign)
    for name in names:
        with _reached(name, ConfigError, advice):
            HfApi().create_repo(name, private=private, exist_ok=True)
            HfApi().auth_check(name, write=True)  # `create_repo` accepts a repository that can only be read
            present[name] = _look(name)
    return {name: repository.visibility for name, repository in present.items()}


def upload(repos: Mapping[str, Path], message: str) -> dict[str, str]:
    """Make each repository mirror its folder, in one commit: all of it is uploaded, or nothing.

    Files of an earlier upload that are not in the folder are deleted; files that are equal are not sent again.

    Returns:
        `on the hub (REPOSITORY, private or public)` -> address.

    Raises:
        UserError: for a repository that holds files which no upload of distill put there, that changes meanwhile, or
            that cannot be written to.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    sent = {}
    for name, folder in repos.items():
        with _reached(name, UserError, "run the same command again: what is finished is not made again"):
            repository = _look(name)
            if foreign := _foreign(repository):
                raise UserError(foreign)
            files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
            left = repository.files & repository.listed - {*files, MARKER} - HUB_FILES
            marker = json.dumps({"made_by": "distill", "files": sorted(files)}, indent=2) + "\n"
            commit = HfApi().create_commit(
                name,
                [
                    *(CommitOperationAdd(file, path) for file, path in files.items()),
                    CommitOperationAdd(MARKER, marker.encode()),
                    *(CommitOperationDelete(file) for file in sorted(left)),
                ],
                commit_message=message,
                parent_commit=repository.commit,
            )
        sent[f"on the hub ({name}, {repository.visibility})"] = str(commit.repo_url)
    return sent


def _look(name: str) -> Repository:
    """The repository at its newest commit; without files where it does not exist or may not be read."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    hub = HfApi()
    try:
        info = hub.model_info(name)
    except RepositoryNotFoundError:
        return Repository(name)
    files = frozenset(hub.list_repo_files(name, revision=info.sha))
    listed = _listed(Path(hub.hf_hub_download(name, MARKER, revision=info.sha))) if MARKER in files else frozenset()
    return Repository(name, info.sha, bool(info.private), files, listed)


def _listed(marker: Path) -> frozenset[str]:
    """The files of a marker, and its own name; nothing for a file that no upload of distill wrote."""
    try:
        content = read_json(marker)
    except ValueError:
        return frozenset()
    ours = isinstance(content, dict) and content.get("made_by") == "distill" and isinstance(content.get("files"), list)
    return frozenset({MARKER, *map(str, content["files"])}) if ours else frozenset()


def _foreign(repository: Repository) -> list[str]:
    """One line where the repository holds files that no upload of distill put there."""
    files = sorted(repository.files - repository.listed - HUB_FILES)
    more = f" and {len(files) - SHOWN} more" if len(files) > SHOWN else ""
    line = (
        f"push: got {repository.name}, which holds {', '.join(files[:SHOWN])}{more}; must be new, empty, or hold only "
        "what distill uploaded; choose another name, or delete these files on the hub"
    )
    return [line] if files else []


@contextmanager
def _reached(repo: str, kind: Callable[[str], UserError], advice: str) -> Iterator[None]:
    """Errors of the hub as one line of `kind`."""
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined] # of the client it uses

    try:
        yield
    except (HTTPError, OSError, ValueError, RuntimeError) as error:
        # A large file that fails is a RuntimeError with the file's name; its cause has the reason.
        cause = (error.__cause__ or error) if isinstance(error, RuntimeError) else error
        reason = " ".join(str(cause).split())[:300] or type(cause).__name__
        raise kind(
            f"push: got {repo}; must be a repository on the Hugging Face hub that you may write to ({reason}); {advice}"
        ) from error
