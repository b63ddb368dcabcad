"""What the source may not do anywhere: load a model that could run code, and write or remove a file in place."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "distill"

LOADING = ("from_pretrained", "from_config", "SentenceTransformer", "CrossEncoder", "pipeline", "load_dataset")
"""Last names of functions of transformers, sentence-transformers and datasets that load what others made."""

OURS = {
    (
        "pipeline/validation/__init__.py",
        "settings",
        "pipeline",
    ): "distill.pipeline.validation.pipeline: it checks stages"
}
WITHOUT_PARAMETER = {
    ("data/task_tables.py", "_from_hub", "load_dataset"): "datasets runs no scripts since version 4, which is required",
    ("data/corpus.py", "_from_hub", "load_dataset"): "as above",
}
"""(file, function, what it calls) -> why `trust_remote_code=False` is not passed."""

WRITERS = (
    "write_text", "write_bytes", "save_pretrained", "save", "savez", "savez_compressed", "save_file", "save_model",
    "tofile", "savefig", "write_table", "to_parquet", "copy2", "copyfile", "copytree", "move", "rename",
    "export", "quantize_dynamic", "quantize_static",
)  # fmt: skip
REMOVERS = ("rmtree", "unlink", "rmdir", "removedirs")
NOT_FILES = ("state.save",)
"""Functions of these names that write whole files themselves."""
CONTEXTS = ("writing", "writing_file", "write_model")
"""What yields a temporary name and puts the whole file or folder in its place."""

UNDER_WRITING = {
    ("data/encode.py", "_store"): "into the temporary folder of an entry",
    ("data/docstring_corpus.py", "_save"): "into the temporary folder of an entry",
    ("runtime/storage/cache.py", "_mark"): "a mark, in one call, before anything else of the cache",
    ("runtime/storage/run_folder.py", "claim"): "a mark, in one call, before anything else of a run",
    ("runtime/storage/append_only.py", "append"): "at the end of a file, of which nothing is changed",
    ("runtime/streams.py", "_to_nothing"): "to nowhere, once a stream is lost",
    ("runtime/streams.py", "opened"): "to nowhere, in place of a closed stream",
    ("compression/pruning/importance.py", "write"): "into a folder of `write_model`, or of a measurement",
    ("compression/quantization/quantize.py", "_with_transformers"): "into the temporary folder of the quantize stage",
    (
        "compression/quantization/quantize.py",
        "by_parameters",
    ): "into a temporary folder, of a model to be quantized",
    ("runtime/storage/leases.py", "_created"): "a lease, in one call; one that is not whole expires",
    ("runtime/storage/leases.py", "_renew"): "as many bytes in place of a lease's, in one call",
    ("runtime/storage/leases.py", "_removed"): "a lease that another process took is put back",
    ("compression/quantization/quantize.py", "openvino_int8"): "into the temporary folder of the quantize stage",
    ("pipeline/context/fingerprints.py", "_bytes"): "into memory",
    ("data/align.py", "encode_aligned"): "into the temporary folder of `Context.corpus`",
    ("data/sequences.py", "encode_corpus"): "into the temporary folder of `Context.corpus`",
    ("data/segments.py", "encode_segments"): "into the temporary folder of `Context.corpus`",
    (
        "models/families/embedding.py",
        "save_pretrained",
    ): "into the temporary folder of `write_model`, as a transformers model",
    ("training/trainer.py", "_save_checkpoint"): "into a checkpoint that the Trainer has just written",
    ("inference/memory.py", "peak"): "a switch of the kernel, not a file",
    ("deploy/export/huggingface.py", "copied"): "into the temporary folder of `export_folder`, or of the export stage",
    ("deploy/export/graphs.py", "program"): "into the temporary folder of an entry",
    ("deploy/export/graphs.py", "_captured"): "into memory",
    ("deploy/serve/cold_start.py", "_put"): "into a temporary folder, from which a process is started",
    ("deploy/export/tokenizer.py", "serving"): "into a temporary folder, of a tokenizer that is only read",
    ("deploy/export/untrained.py", "checkpoint"): "into a temporary folder, of a model that is only timed",
    ("report/figure.py", "_svg"): "into memory",
    ("report/figure.py", "_png"): "into memory",
}
"""(file, function) -> where it writes, without a context of its own."""

REMOVED = {
    ("runtime/storage/cache.py", "remove"): "entries of the cache, by the form of their names",
    ("runtime/storage/store.py", "_in_place"): "in a folder of this process alone, what was damaged",
    ("compression/quantization/quality_limits.py", "remove"): "in the temporary folder of the quantize stage",
    ("deploy/export/onnx.py", "_write"): "beside a temporary file, what torch wrote with it",
    ("runtime/storage/run_folder.py", "sweep"): "links with temporary names, which killed runs left",
    ("runtime/machine.py", "check_shared"): "the file that it wrote before",
    ("pipeline/sweep.py", "failures"): "the failures of this sweep, in a folder of its own",
    ("labelling/work.py", "finish"): "leases and temporary folders of units that are labelled, and the list of others",
    ("labelling/work.py", "_sick"): "the tries that this process noted",
    ("runtime/storage/leases.py", "release"): "a lease of this process",
    ("runtime/storage/leases.py", "_created"): "a lease that this process could not write",
    ("runtime/storage/leases.py", "_removed"): "a lease that expired, under a name of this process",
}
"""(file, function) -> what it removes."""


def last(node: ast.expr) -> str:
    """Last name of what is called."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def calls(source: str) -> Iterator[tuple[str, ast.Call, list[str]]]:
    """(innermost function, call, last names of the contexts around it) of every call."""

    def walk(node: ast.AST, function: str, contexts: list[str]) -> Iterator[tuple[str, ast.Call, list[str]]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function, contexts = node.name, []
        if isinstance(node, ast.Call):
            yield function, node, contexts
        inner = contexts
        if isinstance(node, ast.With):
            inner = contexts + [last(i.context_expr.func) for i in node.items if isinstance(i.context_expr, ast.Call)]
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function, inner if isinstance(child, ast.stmt) else contexts)

    return walk(ast.parse(source), "", [])


@functools.cache
def every_call() -> list[tuple[str, str, ast.Call, list[str]]]:
    files = {file.relative_to(PACKAGE).as_posix(): file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py")}
    return [(name, *found) for name, source in files.items() for found in calls(source)]


def trusts_nobody(call: ast.Call) -> bool:
    """Whether `trust_remote_code=False` is written there."""
    given = [keyword.value for keyword in call.keywords if keyword.arg == "trust_remote_code"]
    return [value.value for value in given if isinstance(value, ast.Constant)] == [False]


def writes(call: ast.Call) -> bool:
    """Whether a call writes directly to its path, and not through the functions of `atomic`."""
    name, text = last(call.func), ast.unparse(call.func)
    if name == "open":
        position = 0 if isinstance(call.func, ast.Attribute) else 1
        modes = [*call.args[position : position + 1], *(k.value for k in call.keywords if k.arg == "mode")]
        return any(not isinstance(mode, ast.Constant) or set(str(mode.value)) & set("wax+") for mode in modes)
    # A bare `write_text` is imported from distill.runtime.storage.atomic; of a path it is a method.
    bare = isinstance(call.func, ast.Name) and name.startswith("write_")
    listed = name in WRITERS or text == "shutil.copy"
    return listed and not bare and not text.startswith("atomic.") and text not in NOT_FILES


def removes(call: ast.Call) -> bool:
    text = ast.unparse(call.func)
    return last(call.func) in REMOVERS or text in ("os.remove", "os.replace")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("AutoModel.from_pretrained(path)", False),
        ("AutoModel.from_pretrained(path, trust_remote_code=True)", False),
        ("AutoModel.from_pretrained(path, trust_remote_code=given)", False),
        ("AutoModel.from_pretrained(path, **settings)", False),
        ("AutoModel.from_pretrained(path, **settings, trust_remote_code=False)", True),
    ],
)
def test_trust_is_seen_where_it_is_written(source: str, expected: bool) -> None:
    ((_, call, _),) = calls(source)
    assert last(call.func) in LOADING
    assert trusts_nobody(call) is expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("open(path, 'w')", True),
        ("open(path, mode='a')", True),
        ("path.open('wb')", True),
        ("open(path, mode)", True),
        ("path.open()", False),
        ("path.open('rb')", False),
        ("(folder / 'x').write_text(text)", True),
        ("atomic.write_text(path, text)", False),
        ("write_text(path, text)", False),
        ("np.savez(path, a=a)", True),
        ("torch.save(state, path)", True),
        ("onnx.save(model, path)", True),
        ("model.save_pretrained(path)", True),
        ("figure.savefig(path)", True),
        ("shutil.copy(path, other)", True),
        ("array.copy()", False),
    ],
)
def test_writing_in_place_is_seen(source: str, expected: bool) -> None:
    (call, *_) = [found for _, found, _ in calls(source)]
    assert writes(call) is expected


def test_contexts_are_those_around_a_call() -> None:
    source = "with writing(a) as t:\n    save(t)\n    def inner():\n        save(u)\nsave(v)\n"
    assert {ast.unparse(call): contexts for _, call, contexts in calls(source)} == {
        "writing(a)": [], "save(t)": ["writing"], "save(u)": [], "save(v)": [],
    }  # fmt: skip


def test_nothing_that_is_loaded_may_run_code() -> None:
    loading = [found for found in every_call() if last(found[2].func) in LOADING]
    assert len(loading) > 15
    unsafe = {(file, function, last(call.func)) for file, function, call, _ in loading if not trusts_nobody(call)}
    assert unsafe == {*OURS, *WITHOUT_PARAMETER}


def test_every_file_is_written_whole_or_not_at_all() -> None:
    in_place = {
        (file, function): f"{file}:{call.lineno}: {ast.unparse(call)}"
        for file, function, call, contexts in every_call()
        if writes(call) and not {*contexts} & {*CONTEXTS} and file != "runtime/storage/atomic.py"
    }
    assert in_place.keys() == UNDER_WRITING.keys(), in_place


def test_files_are_removed_by_one_function() -> None:
    removed = {
        (file, function): f"{file}:{call.lineno}: {ast.unparse(call)}"
        for file, function, call, _ in every_call()
        if removes(call) and file != "runtime/storage/atomic.py"
    }
    assert removed.keys() == REMOVED.keys(), removed
