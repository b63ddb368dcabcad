"""Labels files by a teacher, beside other processes that do the same in the same folder: `label`."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from distill import config
from distill.data import files, meant, task_types
from distill.data.columns import texts_of
from distill.data.files import Table
from distill.data.joined import partitions
from distill.data.labels import Labels
from distill.data.lines import NoRows
from distill.data.stated_beside import check_numbers, name_columns
from distill.data.task_types.classification import CLASSIFICATION
from distill.data.task_types.question_answering import IMPOSSIBLE, START
from distill.data.task_types.reranking import RERANKING
from distill.data.task_types.soft_written import unnamed
from distill.data.task_types.task_type import distinct
from distill.data.task_types.written import names as label_names
from distill.data.task_types.written import whole
from distill.data.usual_columns import LABELS, LABELS_OF
from distill.deploy.export.record import Heads, located, read_any
from distill.deploy.serve.model import Model
from distill.errors import ConfigError, UserError
from distill.labelling import plan as plans
from distill.labelling import rows
from distill.labelling.options import Options
from distill.labelling.plan import Columns, Plan, Source, Unit
from distill.labelling.teacher import labeller, loaded
from distill.labelling.work import Work, finish, run
from distill.runtime.storage import disk_errors

Log = Callable[[str], None]
_TRIES = 3
_OBJECTS = ("struct<", "map<")
"""Beginnings of the types of objects."""
_SETS = ("cats", "accept")
"""Names of labels, of spaCy and Prodigy, if they are objects or lists."""
_WRAPPED = re.compile(r"struct<(choices|labels): (large_)?list<\w+: (large_)?string>>")
"""The type of objects that `listed.unwrapped` reads as lists."""


@dataclass(frozen=True)
class Labelled:
    """A folder of labels that is finished."""

    folder: Path
    rows: int
    units: int
    made: int
    """Rows that this call labelled."""
    settings: dict[str, Any]
    """Settings of a run that learns from the labels."""
    unnamed: bool
    """Whether the teacher's outputs have no names, so that `tasks.labels` must have names in their order."""


def label(
    teacher: str | Path,
    paths: str | Path | Sequence[str | Path],
    out: str | Path,
    options: Options | None = None,
    *,
    log: Log = lambda line: None,
    progress: Callable[[int, int, str], object] = lambda done, total, form: None,
) -> Labelled:
    """Write a teacher's outputs for the rows of files, as soft labels that a run reads (`tasks.soft_label`).

    Any number of processes, on hosts that share the folder, may do the same at the same time and share the work. What
    was interrupted goes on with the same call.

        from distill import labelling
        labelling.label("my-bert", "texts/*.parquet", "labelled", labelling.Options(text="body"))

    Args:
        teacher: an exported folder, or one that transformers loads.
        paths: CSV, TSV, JSONL or parquet; globs and URLs too.
        out: a new folder, or one to go on with.
        log: gets a line about each guess and each failed try.
        progress: gets the number of labelled rows, of all rows, and the form of the teacher, after each unit.

    Raises:
        ConfigError: for an option that does not fit the teacher or the files, a teacher whose outputs cannot be soft
            labels, and a folder that was begun with other ones.
        DataError: for a row that a run could not use.
        UserError: for units that could not be labelled, a file that changed meanwhile, and an error of a disk.
    """
    try:
        given = [paths] if isinstance(paths, str | Path) else paths
        return _labelled(located(teacher), [*map(str, given)], Path(out), options or Options(), log, progress)
    except OSError as error:
        if (line := disk_errors.problem(error)) is None:
            raise
        raise UserError(line) from error


def _labelled(
    teacher: Path,
    paths: Sequence[str],
    out: Path,
    options: Options,
    log: Log,
    progress: Callable[[int, int, str], object],
) -> Labelled:
    if out.resolve().is_relative_to(teacher.resolve()):
        raise ConfigError(f"label.out: got {out}, the folder of the teacher or one in it; must be another; choose one")
    model, plan, known = _begun(teacher, paths, out, options, log)
    work = Work(out, plan, plans.stamp_of(known), options.lease)
    form = f"rows, {plan.backend} {plan.scheme}"
    total = sum(unit.rows for unit in plan.units)
    at_first = done = total - sum(unit.rows for unit in work.open())
    progress(done, total, form)

    def told(unit: Unit) -> None:
        nonlocal done
        done += unit.rows
        progress(done, total, form)

    with labeller(model, plan, options.tokens, log) as label_of:
        run(work, label_of, told, log)
    if poison := finish(work):
        raise UserError(_failed(work, poison))
    return Labelled(out, total, len(plan.units), done - at_first, dict(_settings(out, plan)), unnamed(plan.labels))


def _begun(teacher: Path, paths: Sequence[str], out: Path, options: Options, log: Log) -> tuple[Model, Plan, Plan]:
    """(teacher, what this call labels, the same as the folder of labels was begun)."""
    stored = plans.stored(out)
    model = loaded(teacher, options, stored, log)
    plan = _plan(teacher, paths, out, options, model, stored, log)
    known = plans.begun(out, plan, log)
    if stored is None and known is not plan:  # another process was faster: what no option names is as it says
        model = loaded(teacher, options, known, log)
        plan = replace(plan, backend=model.backend, scheme=model.scheme, tries=options.tries or known.tries)
    plans.check(out, known, plan)
    return model, plan, known


def _failed(work: Work, poison: list[dict[str, Any]]) -> str:
    """The message on units that are not labelled, with what can be done with the same rows and the same teacher."""
    first, place = poison[0], work.folder / "poison.json"
    last = first["first_row"] + first["rows"] - 1
    again = "" if any(len(each["errors"]) < work.plan.tries for each in poison) else f", after you removed {work.tried}"
    return (
        f"{work.folder}: got {len(poison)} of {plans.counted(len(work.plan.units), 'unit')} that failed (the first is "
        f"{first['file']}, rows {first['first_row']} to {last}: {first['errors'][-1]}); must be labelled; see {place}, "
        f"and run the same command{again}, with a smaller label.tokens or more memory if memory was full"
    )


def _plan(
    teacher: Path,
    paths: Sequence[str],
    out: Path,
    options: Options,
    model: Model,
    stored: Plan | None,
    log: Log,
) -> Plan:
    """What this call asks for. All rows are read, so that a wrong one is refused before any work, unless they are those
    with which the folder was begun."""
    names = _outside(files.expand(paths, rows.KEY), out, log)
    first = _first(names, options.separator)
    text, choices = _texts(teacher, options, model, first, log)
    columns = Columns(text, options.label or "", options.soft_label, choices)
    sources = _sources(names, columns, options, model, stored, log)
    columns = _copied(replace(columns, label=_label(options, model, sources, columns, log)), sources, model)
    _check_names(columns)
    _check_numbers(first.rows, columns, model)
    return Plan(
        plans.of_teacher(teacher),
        model.backend,
        model.scheme,
        model.max_length,
        model.kind.name,
        model.labels,
        options.tries or (stored.tries if stored else _TRIES),
        options.rows,
        columns,
        sources,
        options.separator,
    )


def _first(names: Sequence[str], separator: str | None) -> Table:
    """The first rows of the first file that has some. Raises NoRows if none has."""
    for name in names[:-1]:
        with suppress(NoRows):
            return rows.head(name, separator)
    return rows.head(names[-1], separator)


def _sources(
    names: Sequence[str], columns: Columns, options: Options, model: Model, stored: Plan | None, log: Log
) -> tuple[Source, ...]:
    """The files that have rows, as a run reads them, with the columns that the names of their folders state."""
    found, known = list[Source](), _known(stored, columns, options)
    for name in names:
        with suppress(NoRows):
            found.append(_source(name, columns, options, model, known, log))
    if left := len(names) - len(found):
        log(f"{plans.counted(left, 'file')} without rows {'is' if left == 1 else 'are'} left out")
    stated = partitions([source.name for source in found])
    return tuple(_in_folders(source, more) for source, more in zip(found, stated, strict=True))


def _in_folders(source: Source, known: Mapping[str, str | None]) -> Source:
    """A file with the columns that the names of its folders state and it lacks."""
    more = {name: value for name, value in known.items() if name not in source.names}
    names, kinds = (*source.names, *more), (*source.kinds, *[str(pa.string())] * len(more))
    return replace(source, names=names, kinds=kinds, folders=tuple(more.items()))


def _copied(columns: Columns, sources: Sequence[Source], model: Model) -> Columns:
    """The columns with those that a run reads beside the label.

    Raises:
        ConfigError: for labels of types that a run could not read.
    """
    given = [dict(zip(source.names, source.kinds, strict=True)) for source in sources]
    names = [name for name in dict.fromkeys(chain(*given)) if name not in (*columns.copied, columns.soft)]
    labelled = [each[columns.label] for each in given if columns.label in each]
    more = tuple(n for n in (START, IMPOSSIBLE) if model.kind.extractive and n in names and labelled)
    objects = {name for each in given for name, data_type in each.items() if _is_unread(data_type)}
    stating = tuple(name for name in meant.stating(names, columns.label) if name not in (*more, *objects))
    kinds = {kind for kind in labelled if kind != "null"}
    nested = {*filter(_is_nested, kinds)}
    if nested and kinds != nested:
        raise ConfigError(
            f"label.label: got {columns.label}, which is {' and '.join(sorted(kinds))} in different files; must be "
            "lists or objects in all files, or in none; write them alike, or label the files into different folders"
        )
    as_text = len(kinds) > 1 and any(kind.endswith("string") for kind in kinds)
    return replace(columns, more=more, stating=stating, as_text=as_text)


def _is_nested(kind: str) -> bool:
    return "list" in kind or kind.startswith(_OBJECTS)


def _is_unread(kind: str) -> bool:
    """Whether a type is that of objects by which no run reads a row. Parquet could not hold all of them."""
    return kind.startswith(_OBJECTS) and _WRAPPED.fullmatch(kind) is None


def _outside(names: Sequence[str], out: Path, log: Log) -> list[str]:
    """The files that are not in the folder of labels, which a glob may match."""
    found = [name for name in names if "://" in name or not Path(name).resolve().is_relative_to(out.resolve())]
    if not found:
        raise ConfigError(
            f"{rows.KEY}: got only files in {out}, the folder of label.out; must be other files; name them"
        )
    if left := len(names) - len(found):
        are = "is" if left == 1 else "are"
        log(f"{out}: {plans.counted(left, 'file')} in it {are} not labelled, as it is the folder of the labels")
    return found


def _texts(
    teacher: Path, options: Options, model: Model, first: Table, log: Log
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(text columns, columns of choices): those of the options, those of the teacher's task, or the likely ones of the
    first file."""
    kind, record = model.kind, read_any(teacher)
    known = () if record is None or isinstance(record, Heads) else record.choices
    settings = config.Task(
        text=options.text, text_pair=options.text_pair, choices=list(options.choices) if options.choices else None
    )
    stated = tuple(filter(None, (options.text, options.text_pair)))
    table = rows.as_lists(first, stated or model.columns, options.label or "", kind)
    expected = () if kind.choices and not known else model.columns
    text, choices, guessed = texts_of(settings, table.rows, expected, known, kind.architecture, "label", first.files[0])
    if model.columns and len(text) != len(model.columns):
        raise ConfigError(
            f"label.text: got {', '.join(text)}; must be {len(model.columns)} for this model "
            f"({', '.join(model.columns)}); name as many in label.text and label.text_pair"
        )
    if guessed:
        log(f"{first.files[0]}: the text is from {' and '.join([*text, *choices])}")
    return text, choices


def _known(stored: Plan | None, columns: Columns, options: Options) -> dict[str, Source]:
    """Content -> file with which a folder was begun; none where this call reads or divides the files otherwise."""
    if stored is None or stored.most != options.rows or not _reads_alike(stored.columns, columns):
        return {}
    return {source.content: _by_itself(source) for source in stored.sources}


def _source(
    name: str, columns: Columns, options: Options, model: Model, known: Mapping[str, Source], log: Log
) -> Source:
    """A file and its units: as the folder was begun, if the content of the file is the same; else it is scanned."""
    if known:
        with files.opened(name, rows.KEY) as (content, _):
            if (same := known.get(content)) is not None:
                return replace(same, name=name, readers=rows.readers(same.way))
    return rows.scan(name, columns, model.kind, options.separator, options.rows, log)


def _by_itself(source: Source) -> Source:
    """A stored file with the columns that are in it alone. Those of its folders are stated by the path of this call."""
    own = len(source.names) - len(source.folders)  # as `_in_folders` adds them
    return replace(source, names=source.names[:own], kinds=source.kinds[:own], folders=())


def _reads_alike(one: Columns, other: Columns) -> bool:
    return (one.text, one.choices) == (other.text, other.choices)


def _label(options: Options, model: Model, sources: Sequence[Source], columns: Columns, log: Log) -> str:
    """The column of given labels; a name for a column without any if no file has one."""
    usual = LABELS_OF.get(model.kind.architecture, LABELS)
    found, named = "label", options.label is None
    for source in sources:
        names = [name for name in source.names if name not in (*columns.text, *columns.choices)]
        lower = {name.lower(): name for name in reversed(names)}
        if options.label in names:
            found, named = str(options.label), True
            break
        nested = {name for name, kind in zip(source.names, source.kinds, strict=True) if _is_nested(kind)}
        sets = [each for each in _SETS if model.kind.named and lower.get(each) in nested]
        if options.label is None and (likely := next((lower[each] for each in (*usual, *sets) if each in lower), None)):
            found = likely
            log(f"{source.name}: the given label is from {found}")
            break
    if not named:
        raise ConfigError(
            f"label.label: got {options.label}; must be a column of a file, but not of the text; correct it, or leave "
            "it out for rows without given labels"
        )
    for source in sources:
        if found not in source.names:
            log(f"{source.name}: the given label is null in each row, as there is no column {found}")
    return found


def _check_names(columns: Columns) -> None:
    if (twice := next((name for name in columns.names if columns.names.count(name) > 1), None)) is not None:
        named: dict[str, Sequence[str]] = {"soft_label": [columns.soft], "label": [columns.label]}
        named["choices"] = columns.choices
        setting = next((setting for setting, names in named.items() if twice in names), "text_pair")
        raise ConfigError(
            f"label.{setting}: got {twice}, which stands for two columns; must be different names; name {twice} once"
        )


def _check_numbers(first: pa.Table, columns: Columns, model: Model) -> None:
    """As a run does with all columns: raise ConfigError for numbers of labels, if a column that is not copied has the
    names of the outputs in another order."""
    if model.kind is not CLASSIFICATION or columns.label not in first.column_names:
        return
    given, numbers = first[columns.label], tuple(map(str, range(len(model.labels))))
    beside = {name.lower() for name in first.column_names} & {*name_columns(columns.label)}
    if beside or not model.kind.accepts(given.type) or {*distinct(whole(label_names(given)))} - {*numbers, "-1"}:
        return
    own = task_types.Columns(columns.text, (columns.label,), model.kind)
    check_numbers(first, own, Labels(model.labels, numbers), "label")


def _settings(out: Path, plan: Plan) -> Iterator[tuple[str, Any]]:
    """The settings of a run that learns from the labels."""
    columns = plan.columns
    yield "tasks.train", f"{glob.escape(str(out))}/*.parquet"
    yield "tasks.text", columns.text[0]
    if len(columns.text) > 1:
        yield "tasks.text_pair", columns.text[1]
    if columns.choices:
        yield "tasks.choices", columns.choices[0] if len(columns.choices) == 1 else list(columns.choices)
    yield "tasks.label", columns.label
    yield "tasks.soft_label", columns.soft
    yield "tasks.kind", RERANKING.name if plan.reranks else plan.kind
    if unnamed(plan.labels):
        yield "tasks.labels", list(plan.labels)
