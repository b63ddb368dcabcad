"""Any words on the command line end with a run that begins or with a message, never with a traceback."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distill import config
from distill.pipeline.validation.rules import flatten

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("real_compose")]
WORDS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)
SCALARS = st.one_of(
    st.sampled_from(
        [
            "null", "true", "no", "''", "0", "-1", "1e400", "nan", "inf", "1e-400", "0x10", "007", "1_000", "[]", "{}",
            "~", ".", "..", "/", "/dev/null", "/proc/self/environ", "~/x", "http://x", "file:///etc/passwd", "a/b",
            "${seed}", "${nope}", "${oc.env:HF_TOKEN}", "${oc.env:SECRET,x}", "${hydra:runtime.cwd}", "${seed", "$seed",
            "${oc.decode:${oc.env:SECRET}}", "${.seed}", "${..}", "${now:%Y}", "{{x}}", "<b>", "\x1b[31m", "\u202e",
            "os.system", "distill.losses.mse", "builtins.eval", "teacher", "student", "fp32", "int8", "torch",
        ]
    ),
    st.integers().map(str),
    st.floats().map(repr),
    WORDS,
    WORDS.map(repr),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda each: f"[{','.join(each)}]"),
        st.dictionaries(st.sampled_from(["a", "_target_", "_partial_", "weight", "1"]), inner, max_size=3).map(
            lambda each: "{" + ",".join(f"{key}: {value}" for key, value in each.items()) + "}"
        ),
    ),
    max_leaves=4,
)
SINGLE = [
    "-m",
    "--multirun",
    "--resolve",
    "--info",
    "--cfg",
    "--config-name=x",
    "--config-path=/",
    "--config-dir",
    "--",
]


@functools.cache
def keys(recipe: str) -> list[str]:
    """Every setting of a recipe, and every group of settings."""
    parts = [key.split(".") for key in flatten(asdict(config.load_config([f"recipe={recipe}"])))]
    return sorted({".".join(part[:number]) for part in parts for number in range(1, len(part) + 1)})


@st.composite
def commands(draw: st.DrawFn) -> list[str]:
    recipe = draw(st.sampled_from(sorted(config.recipes())))
    existing = st.sampled_from(keys(recipe))
    key = st.one_of(
        existing,
        existing,
        existing,
        st.builds(lambda key, name: f"{key}.{name}", existing, st.sampled_from(["x", "_target_", "weight", "0", ""])),
        st.sampled_from(
            """term@stages.pretrain.terms.x stage@stages.x tasks teacher corpus limit recipe hydra.run.dir
            hydra.job.chdir hydra/launcher hydra.callbacks.x._target_ hydra.verbose""".split()
        ),
        WORDS,
    )
    prefix = st.sampled_from(["", "", "", "", "+", "++", "~"])
    override = st.builds(lambda prefix, key, value: f"{prefix}{key}={value}", prefix, key, VALUES)
    words = draw(st.lists(st.one_of(override, override, override, WORDS, st.sampled_from(SINGLE)), max_size=4))
    return [*draw(st.sampled_from([[f"recipe={recipe}"]] * 9 + [[]])), *words]


def runs_in_a_loop(words: list[str]) -> bool:
    """Options of Hydra that print a completion, and sweeps, whose jobs are commands of their own."""
    return bool({"-m", "--multirun"} & {*words})


@given(commands())
def test_any_command_line(command, outcomes, words: list[str]) -> None:
    if runs_in_a_loop(words):
        words = [word for word in words if word not in ("-m", "--multirun")]
    outcome = command(words)
    outcomes["accepted" if outcome.accepted else "refused"] += 1


def test_both_outcomes_occur(command) -> None:
    """The cases above mean nothing if nothing were accepted."""
    outcomes = Counter(command(["recipe=distilbert", f"seed={value}"]).accepted for value in ("3", "-1", "x"))
    assert outcomes == {True: 1, False: 2}
