"""Rows without labels that the user has. Without torch."""

from __future__ import annotations

from distill import config
from distill.data import files, folders
from distill.data.files import Table
from distill.data.tagged_rows import with_lists_of_words
from distill.data.task_types.task_type import as_list


def read_unlabelled(settings: config.Config, *, per_token: bool) -> Table | None:
    """The rows of `transfer.files`; None without. `per_token`: whether a task has a tag for each word."""
    if settings.transfer.files is None or settings.transfer.times == 0:
        return None
    paths, key = as_list(settings.transfer.files), "transfer.files"
    if len(paths) == 1 and folders.is_known(str(paths[0])):
        return folders.of_role(str(paths[0]), "train", key)
    table = files.read([*map(str, paths)], key, settings.tasks.separator)
    return with_lists_of_words(config.Task(), table, [], "", untagged=per_token)
