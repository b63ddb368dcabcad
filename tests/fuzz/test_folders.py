"""A model folder with mutated files is loaded, or refused with a message, in a limited time and memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import tiny

pytestmark = pytest.mark.slow
VALUES = st.one_of(
    st.sampled_from(
        [None, True, False, 0, 1, -1, 3, 7, 10**6, 10**9, 10**18, 0.5, -0.5, 1e300, "", "x", "gelu", [], {}]
    ),
    st.sampled_from(["../../etc/passwd", "/etc/passwd", "bert", "roberta", "t5", "os.system", "float16", "{{ 1 }}"]),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.sampled_from(["a", "0", "type"]), st.integers(0, 3), max_size=2),
    st.text(max_size=5),
)
EXTRA = (
    "auto_map",
    "quantization_config",
    "torch_dtype",
    "architectures",
    "tokenizer_class",
    "chat_template",
    "num_labels",
)
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tiny.save(tmp_path_factory.mktemp("model") / "bert", "bert", "SequenceClassification")
    return folder


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to every value inside of a JSON value; of long lists and objects to the first of them."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, part in [*inner][:40] for place in [(*path, key), *places(part, (*path, key))]]


@st.composite
def changes(draw: st.DrawFn, folder: Path) -> dict[str, bytes]:
    """File -> new content."""
    name = draw(st.sampled_from([*FILES, "config.json", "model.safetensors"]))
    content = (folder / name).read_bytes()
    if name == "model.safetensors" or draw(st.integers(0, 4)) == 0:
        changed = bytearray(content)
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, min(len(changed), 3000) - 1))
            changed[at] = draw(st.integers(0, 255))
        return {name: bytes(changed[: draw(st.sampled_from([len(changed), len(changed) // 2]))])}
    value = json.loads(content)
    for _ in range(draw(st.integers(1, 2))):
        every = places(value)
        *path, key = draw(st.sampled_from([*every, *((extra,) for extra in EXTRA)]))
        inner = value
        for part in path:
            inner = inner[part]
        if isinstance(inner, dict) and key in inner and draw(st.booleans()):
            del inner[key]
        else:
            inner[key] = draw(VALUES)
    return {name: json.dumps(value).encode()}


@pytest.fixture(scope="module")
def became() -> Iterator[Callable[[Path, Path], str]]:
    """`became(folder, out)`: `loaded`, `refused: MESSAGE`, or anything else."""
    words = [sys.executable, str(Path(__file__).with_name("loader.py"))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        requests, answers = server.stdin, server.stdout

        def call(folder: Path, out: Path) -> str:
            out.unlink(missing_ok=True)
            requests.write(f"{folder}\t{out}\n")
            requests.flush()
            status = int(answers.readline())
            return out.read_text(errors="replace") + ("" if status == 0 else f"failed: ended with status {status}")

        yield call
        requests.close()


@given(st.data())
def test_any_model_folder(outcomes: Any, model: Path, became: Any, tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / "model"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(model, folder)
    changed = data.draw(changes(model))
    for name, content in changed.items():
        (folder / name).write_bytes(content)
    answer = became(folder, tmp_path / "out")
    assert "failed:" not in answer, answer
    assert "loaded" in answer or "refused:" in answer, answer
    outcomes["accepted" if "loaded" in answer else "refused"] += 1
