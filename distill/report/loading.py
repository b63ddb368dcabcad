"""How to load a variant: the command and the code, and what to know about it."""

from __future__ import annotations

import json

from distill.config.backends import BACKENDS
from distill.config.plan import OF_TEACHER
from distill.config.schemes import COMPILED, ONNX, SCHEMES, file_of
from distill.evaluation.results import Model, Results, known
from distill.report.model_rows import task_names, variant
from distill.report.variants import Run
from distill.runtime import quoting

_AS_FLOAT32 = ("bf16", "fp16", "tf32", "fp32_medium", "fp32_tf32")
"""Ways in which torch was timed with the weights that an export holds in float32."""


Loading = dict[str, str | None]
"""How a variant is loaded: see `loading`."""


def loading(run: Run, model: Model) -> Loading:
    """Keys `path`, `command`, `code` and `note`; None for a key that the variant does not have."""
    if model.failed:
        return {"path": None, "command": None, "code": None, "note": f"This variant failed: {model.failed}"}
    exported = _exported(run.results, model) if model.role in ("student", "teacher") else None
    path = known(model.path)
    folder = exported or (path if model.backend == "torch" else None)
    if folder is None:
        if model.role == "teacher":
            path = path or ""
            where = f" The evaluate stage made its file: {run.folder}/{path}." if path else ""
            note = f"This is your model in {variant(model)}, which the run does not export.{where}{_remade(run, model)}"
            code = _by_hand(model.backend, model.scheme, f"{run.folder}/{path}") if path.endswith(ONNX) else None
            return {"path": None, "command": None, "code": code, "note": note}
        note = "No folder of the run loads this variant: its recipe has no export stage for it."
        return {"path": path, "command": None, "code": None, "note": note}
    path = f"{run.folder}/{folder}" if run.folder not in ("", ".") else folder
    backend, scheme = model.backend, model.scheme.removesuffix(COMPILED)
    # From the file of another artifact, `distill.load` runs what the run scored.
    is_served = file_of(backend, scheme) not in (None, (backend, scheme)) and exported and model.scores
    if backend == "torch" and scheme in _AS_FLOAT32 and not is_served:
        scheme = "fp32"
    tasks = [] if run.results.heads and model.role == "student" else task_names(run.results)[1:]
    notes = [f"Other tasks are beside it: {', '.join(tasks)}."] if tasks else []
    if not is_served and file_of(backend, scheme) != (backend, scheme):
        code = _by_hand(backend, scheme, f"{path}/onnx/{ONNX}")
        return {"path": path, "command": None, "code": code, "note": " ".join([_BY_HAND, *notes])}
    if model.scheme.endswith(COMPILED):
        notes.insert(0, f"It was timed as {variant(model)}; distill.load does not compile.")
    elif scheme != model.scheme:
        notes.insert(0, f"It was scored and timed as {variant(model)}; distill.load computes in float32.")
    return {
        "path": path,
        "command": f"{_PREDICT} {quoting.path(path)} --backend {backend} --scheme {scheme} {_asked(run.results)[0]}",
        "code": _code(path, backend, scheme, _asked(run.results)[1]),
        "note": " ".join(notes) or None,
    }


def _by_hand(backend: str, scheme: str, file: str) -> str | None:
    """Python that loads an ONNX file without distill, in the precision of a scheme."""
    code = BACKENDS[backend].code
    return code and code.format(file=file, hint="bf16" if scheme.endswith("bf16") else "f32")


def _remade(run: Run, teacher: Model) -> str:
    """The command that exports the teacher in a scheme, with the lengths and thresholds of its task; else an empty
    text."""
    whole = next((known(m.path) for m in run.results.models if (m.role, m.scheme, m.backend) == _TEACHER), None)
    form = (teacher.backend, teacher.scheme)
    key = next((key for key, scheme in SCHEMES.items() if (scheme.backend, scheme.scheme) == form), None)
    if not whole or key is None:
        return ""
    folder = quoting.setting("teacher.name", f"{run.folder}/{whole}")
    command = f"python -m distill recipe=quantize {folder} 'stages.quantize.schemes=[{key}]'"
    return f" With the settings of this run's tasks added, this command exports it: {command}"


_TEACHER = ("teacher", "fp32", "torch")
_PREDICT = "python -m distill.predict"
_TEXT, _FILE = '"a text"', "--file FILE"
_BY_HAND = "distill.load has no artifact of this kind; the backend itself reads the exported ONNX file."


def _asked(results: Results) -> tuple[str, str]:
    """What a model of the first task is asked: on the command line, and in Python."""
    first = next((row for row in results.coverage if row.task in task_names(results)[:1]), None)
    columns, choices = (None, False) if first is None else (known(first.columns), bool(known(first.choices)))
    if columns is None:
        return _FILE, 'model.predict(["a text"])  # a pair of texts is ("one", "other")'
    parts = [json.dumps(name, ensure_ascii=False) for name in columns]
    if choices:
        return _FILE, f"model.predict([({', '.join(parts)}, ['one choice', 'another'])])"
    return (_FILE, f"model.predict([({', '.join(parts)})])") if len(parts) > 1 else (_TEXT, 'model.predict(["a text"])')


def _code(path: str, backend: str, scheme: str, asked: str) -> str:
    loaded = f'model = distill.load({path!r}, backend="{backend}", scheme="{scheme}")'
    return f"import distill\n\n{loaded}\n{asked}"


def is_exported(results: Results, model: Model) -> bool:
    """Whether the run exported the folder from which a model is served."""
    return _exported(results, model) is not None


def _exported(results: Results, model: Model) -> str | None:
    """The exported folder of a model for the first task, below the run folder; None if it was not exported."""
    stages = [s for s in results.stages if s.kind == "export" and not s.skipped]
    if whole := model.role == "teacher":
        found = next((s for s in stages if s.name.endswith(OF_TEACHER)), None)
    else:
        found = next((s for s in stages if s.target in (None, model.target) and not s.name.endswith(OF_TEACHER)), None)
    tasks = task_names(results)
    if found is None or not tasks:
        return None
    parts = [found.name, *([found.target] if found.target else [])]
    return "/".join([*parts, "shared" if results.heads and not whole else tasks[0]])
