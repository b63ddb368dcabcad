"""Upload of exported folders to the Hugging Face hub.

Every upload also writes `MARKER`, the list of the files that it put into the repository. Only listed files are ever
replaced or deleted: a repository with any other file, `HUB_FILES` aside, is refused.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from distill.config import Export
from distill.config.plan import EMBEDDER, Plan
from distill.errors import ConfigError, UserError
from distill.runtime.storage.atomic import read_json
from distill.runtime.storage.checksums import SUMS

MARKER = "distill_export.json"
"""File in a repository with the names of all files that an upload put there."""
HUB_FILES = frozenset({".gitattributes"})
"""Files that the hub itself puts into a new repository. They are never changed."""
LOG_IN = "log in with `hf auth login`, or choose another"
AGAIN = "run the same command again: finished stages are skipped"
SHOWN = 3
"""Largest number of files that an error names."""


@dataclass(frozen=True)
class Repository:
    """A repository on the hub at one commit."""

    commit: str | None = None
    private: bool = True
    ours: frozenset[str] = frozenset()
    """Files of earlier uploads: the files that `MARKER` lists, and `MARKER` itself."""
    others: tuple[str, ...] = ()
    """All other files, `HUB_FILES` aside."""

    @property
    def visibility(self) -> str:
        return "private" if self.private else "public"


def exported(plan: Plan, tasks: Sequence[str]) -> dict[str, str]:
    """Name -> path, relative to the run folder, of every exported folder: `2x-cola` -> `export/2x/cola`.

    A leading `export` of the stage's name is omitted: `export_embedder/embedder` becomes `embedder`.
    """
    names: dict[str, str] = {}
    for step in plan.of(Export):
        for model in [EMBEDDER] if step.embeds else tasks:
            parts = [step.stage.removeprefix("export"), step.target, model]
            clean = [re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-.") for part in parts]
            name = "-".join(dict.fromkeys(filter(None, clean))) or "model"
            # `a_b` and `a-b` would be one repository, and only the last folder would be in it.
            taken = {each.casefold() for each in names}
            numbered = (f"{name}-{number}" if number > 1 else name for number in itertools.count(1))
            names[next(each for each in numbered if each.casefold() not in taken)] = f"{step.folder}/{model}"
    return names


def repositories(repo: str, folders: Mapping[str, str]) -> dict[str, str]:
    """Repository -> folder: `repo` for a single folder, else `repo-NAME` for each, e.g. `me/student-2x-cola`."""
    return {repo if len(folders) == 1 else f"{repo}-{name}": folder for name, folder in folders.items()}


def looked_at(repos: Iterable[str], advice: str = LOG_IN) -> dict[str, Repository]:
    """The current state of the repositories; nothing on the hub is changed.

    Raises:
        ConfigError: with a line for each repository that contains files of others, or for a repository that cannot be
            read, with `advice`.
    """
    present = {name: _look(name, advice) for name in repos}
    if refused := [_refusal(name, repository.others) for name, repository in present.items() if repository.others]:
        raise ConfigError(refused)
    return present


def create(repos: Iterable[str], private: bool = True) -> dict[str, str]:
    """Create the repositories that do not exist, private or public, before anything is trained.

    An existing repository keeps its visibility. If any repository is refused, none is created.

    Returns:
        repository -> `private` or `public`.

    Raises:
        ConfigError: as from `looked_at`, and for a repository that cannot be created or written to.
    """
    from huggingface_hub import HfApi

    present = looked_at(repos)
    for name in present:
        with _reached(name, LOG_IN):
            HfApi().create_repo(name, private=private, exist_ok=True)
            HfApi().auth_check(name, write=True)  # `create_repo` accepts a repository without write access
    return {name: repository.visibility for name, repository in looked_at(present).items()}


def upload(repos: Mapping[str, Path], message: str) -> dict[str, str]:
    """Make each repository mirror its folder, in one commit, so that an upload is never partial.

    Files of an earlier upload that are not in the folder are deleted. Unchanged files are not uploaded again.
    `HfApi.upload_folder` is not used, because it makes several commits of a large folder or after a failure.

    Returns:
        `on the hub (REPOSITORY, private or public)` -> address.

    Raises:
        ConfigError: as from `looked_at`, and for a repository that changes during the upload or cannot be written to.
        UserError: for a folder with a link.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    uploaded = {}
    for name, folder in repos.items():
        repository = looked_at([name], AGAIN)[name]
        files, outdated = _changes(repository, folder)
        marker = json.dumps({"made_by": "distill", "files": sorted(files)}, indent=2) + "\n"
        with _reached(name, AGAIN):
            operations: list[CommitOperationAdd | CommitOperationDelete] = [
                *(CommitOperationAdd(file, path) for file, path in files.items()),
                CommitOperationAdd(MARKER, marker.encode()),
                *(CommitOperationDelete(file) for file in outdated),
            ]
            commit = HfApi().create_commit(name, operations, commit_message=message, parent_commit=repository.commit)
        uploaded[f"on the hub ({name}, {repository.visibility})"] = str(commit.repo_url)
    return uploaded


def preview(repos: Mapping[str, Path], private: bool = True) -> Iterator[str]:
    """Yield lines on what `create` and `upload` would do; nothing on the hub is changed. Errors are as from
    `upload`."""
    for name, folder in repos.items():
        repository = looked_at([name])[name]
        files, outdated = _changes(repository, folder)
        new = f"it would be created, {'private' if private else 'public'}"
        yield f"push_dry_run: {name}: {f'it is {repository.visibility}' if repository.commit else new}"
        yield from (f"  upload {file}, {path.stat().st_size:,} bytes" for file, path in files.items())
        yield f"  upload {MARKER}, the list of these files"
        yield from (f"  delete {file}" for file in outdated)


def _changes(repository: Repository, folder: Path) -> tuple[dict[str, Path], list[str]]:
    """(name of a file in the repository -> the file in the folder, files of earlier uploads to delete).

    Raises:
        UserError: for a link: in the folder of a run that somebody else began, it may lead to any file of this machine.
    """
    every = sorted(folder.rglob("*"))
    if (link := next((path for path in every if path.is_symlink()), None)) is not None:
        raise UserError(
            f"{link}: got a link; must be a file of the export; remove it, or replace it by a copy of the file"
        )
    files = {path.relative_to(folder).as_posix(): path for path in every if path.is_file() and path.name != SUMS}
    return files, sorted(repository.ours - {*files, MARKER})


def _look(name: str, advice: str) -> Repository:
    """The repository at its newest commit; without files if it does not exist or is not readable."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    hub = HfApi()
    with _reached(name, advice):
        try:
            info = hub.model_info(name)
        except RepositoryNotFoundError:
            return Repository()
        files = {*hub.list_repo_files(name, revision=info.sha)} - HUB_FILES
        listed = _listed(Path(hub.hf_hub_download(name, MARKER, revision=info.sha))) if MARKER in files else frozenset()
    return Repository(info.sha, bool(info.private), listed & files, tuple(sorted(files - listed)))


def _listed(marker: Path) -> frozenset[str]:
    """The files that a marker lists, and its own name; empty for a file that no upload of distill wrote."""
    with suppress(ValueError):
        match read_json(marker):
            case {"made_by": "distill", "files": [*files]}:
                return frozenset({MARKER, *map(str, files)})
    return frozenset()


def _refusal(name: str, others: Sequence[str]) -> str:
    """The error for a repository with files that no upload of distill put there."""
    more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
    return (
        f"push: got {name}, which contains {', '.join(others[:SHOWN])}{more}; must be new, empty, or contain "
        "only files that distill uploaded; choose another name, or delete these files on the hub"
    )


@contextmanager
def _reached(repo: str, advice: str) -> Iterator[None]:
    """Raise errors of the hub as a one-line ConfigError."""
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined] # of the client it uses

    try:
        yield
    except (HTTPError, OSError, ValueError, RuntimeError) as error:
        # A failed upload of a large file is a RuntimeError with the name of the file; its cause has the reason.
        cause = (error.__cause__ or error) if isinstance(error, RuntimeError) else error
        reason = " ".join(str(cause).split())[:300] or type(cause).__name__
        raise ConfigError(
            f"push: got {repo}; must be a repository on the Hugging Face hub that you may write to ({reason}); {advice}"
        ) from error
