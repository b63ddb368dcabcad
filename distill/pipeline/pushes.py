"""The repositories of `push`: created before anything is trained, and filled at the end of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from distill.config.plan import SHARED_HEADS, Plan

if TYPE_CHECKING:
    from distill.pipeline.context import Context


def repositories(ctx: Context) -> dict[str, Path]:
    """Repository -> the folder that is uploaded to it. They are created now, unless a budget decides later which of
    them are filled, or the run says only what it would upload; then they are looked at.

    Raises:
        ConfigError: for a repository that cannot be created, written to or read, or that has files of others.
    """
    from distill.deploy.export.push import looked_at

    repos, config, machine = _folders(ctx, ctx.plan), ctx.config, ctx.machine
    if machine.main and (config.push_dry_run or config.budget.minutes is not None):
        looked_at(repos)
    elif machine.main:
        _create(ctx, repos)
    return repos


def push(repos: dict[str, Path], ctx: Context, plan: Plan) -> None:
    """Upload what a run made to the repositories. One whose model was not made is left as it is. `plan`: the steps that
    were made, without a teacher that is exported beside its students."""
    from distill.deploy.export.push import preview, upload

    config, machine = ctx.config, ctx.machine
    if not machine.main or config.push is None:
        return
    made = {repo: folder for repo, folder in repos.items() if folder.is_dir()}
    # Where no student was made, the folder has another name than was planned.
    made |= {repo: folder for repo, folder in _folders(ctx, plan).items() if folder not in made.values()}
    for repo in repos.keys() - made.keys():
        machine.log(f"push: {repo}: its model was not made, and nothing is uploaded to it")
    if config.push_dry_run:
        for line in preview(made, config.push_private):
            machine.log(line)
        return
    if config.budget.minutes is not None:
        _create(ctx, made)
    for repository, address in upload(made, f"distill {ctx.recipe}, seed {config.seed}").items():
        machine.log(f"{repository}: {address}")


def _folders(ctx: Context, plan: Plan) -> dict[str, Path]:
    """Repository -> folder of each export step; empty without `push`."""
    from distill.deploy.export.push import exported, repositories

    if ctx.config.push is None:
        return {}
    names = [SHARED_HEADS] if ctx.shared else list(ctx.tasks)
    return {
        repo: ctx.folder.path / inside for repo, inside in repositories(ctx.config.push, exported(plan, names)).items()
    }


def _create(ctx: Context, repos: dict[str, Path]) -> None:
    from distill.deploy.export.push import create

    for name, visibility in create(repos, ctx.config.push_private).items():
        ctx.machine.log(f"push: {name} is {visibility}")
