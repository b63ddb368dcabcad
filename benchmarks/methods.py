"""Compares methods of distillation at one student's shape and one budget of arithmetic, over seeds.

    python -m benchmarks.methods ../shared/data/glue                       # every method with the seeds 0, 1 and 2
    python -m benchmarks.methods ../shared/data/glue --methods rkd --seeds 0

The argument is a folder in the layout of nyu-mll/glue. The embedded teacher, six layers, is fine-tuned on the complete
CoLA, MRPC, STS-B and RTE. A student has three of its layers, at its width. All learn from the tasks' own rows: there
is no transfer set. The results are kept in docs/results/recipes, with the student of layer dropping as the baseline of
every other one. A run that was stopped goes on by the same command, and one that is kept already is not made again.

The budget of each student is the arithmetic of `BUDGET` epochs of training on labels alone: see `Cost`. What the
teacher computes for a student counts. Its own fine-tuning does not count: whoever distills has a teacher. Learning
rates, temperatures and weights are those of the recipes, and none was tuned here.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.tables.runs import RECIPES, RESULTS, ROOT, keep

FOLDER, KEPT = Path("outputs/methods"), RESULTS / RECIPES
TASKS = "cola,mrpc,stsb,rte"
BUDGET = 4.0
"""Epochs of a student that is trained on the labels alone."""
EPOCH = 564_000
"""Tokens of the training rows of all four tasks, without the tenth that is set aside as development rows."""
STEP = 4096
"""Tokens of a step on the corpus."""


@dataclass(frozen=True)
class Cost:
    """Arithmetic for each token, in passes of the student's layers from their input to their output.

    A backward pass costs two forward ones: one for the inputs and one for the weights. The teacher has twice the layers
    of the student, without a backward pass. Embeddings are looked up, and attention between tokens is left out: for
    these short texts it is a few percent of all, and it is in every term in proportion.
    """

    labels: float = 3.0
    """Training of the student."""
    teacher: float = 2.0
    """A pass of the teacher. Its outputs are computed once for each row, its hidden states in each step."""
    replacing: float = 3.35
    """Training of replaced layers: on average 65% of the student's layers (3) and 35% of the teacher's groups, which
    have twice the layers, without gradients of their weights (2 x 2)."""
    head: float = 0.33
    """A pass of the language-model head for 15% of the tokens."""

    @property
    def budget(self) -> float:
        """Passes over the training rows of all tasks that each student may use."""
        return BUDGET * self.labels

    def outputs(self, share: float = 1.0) -> float:
        """Epochs on the teacher's outputs, for this share of the budget."""
        return round((share * self.budget - self.teacher) / self.labels, 2)

    def states(self, share: float = 1.0) -> float:
        """Epochs on the teacher's hidden states."""
        return round(share * self.budget / (self.labels + self.teacher), 2)

    def corpus(self, share: float, *, head: bool = False) -> int:
        """Steps on the corpus, on the teacher's hidden states and, with `head`, on its predictions of masked tokens."""
        token = self.labels + self.teacher + (4 * self.head if head else 0.0)
        return round(share * self.budget / token * EPOCH / STEP)

    def fitted(self, steps: int) -> float:
        """Share of the budget for steps on the corpus that train the teacher with its language-model head."""
        return steps * STEP / EPOCH * 3 * (self.teacher + self.head) / self.budget


COST = Cost()
ADAPT = 20
"""Steps in which the embedded teacher, published without a language-model head, learns one, as in recipe=distilbert."""

DROPPED = (
    "+stage@stages.drop=train +term@stages.drop.terms.supervised=supervised stages.drop.data=tasks "
    "stages.drop.start=teacher stages.drop.build_student=true stages.drop.batch.examples=32 stages.drop.dropout=0.0 "
    f"stages.drop.base_lr=2.0e-4 stages.drop.epochs={BUDGET} stages.evaluate.baseline=drop"
)
"""The student of recipe=layer_drop as the baseline of others: it is trained once for each seed."""
COMMON = (
    f"tasks=glue tasks.names=[{TASKS}] transfer=none student.num_hidden_layers=3 stages.finetune_teacher.epochs=3 "
    "stages.finetune_teacher.min_steps=0 stages.evaluate.quantized=null stages.evaluate.repeats=1"
)


def _pruned(recipe: str, epochs: float, settings: str = "") -> str:
    """Layers of the fine-tuned teacher, chosen by the loss without them, that recover."""
    return (
        f"recipe={recipe} target.speedup=null stages.recover.epochs={epochs} "
        f"stages.recover.scale_with_compression.epochs=0 stages.recover.min_steps=0 {settings} {DROPPED} "
        "pipeline=[finetune_teacher,prune,recover,drop,evaluate]"
    )


def _outputs(term: str) -> str:
    """The terms of recipe=prune_layers, with another one in place of the soft targets."""
    return (
        f"+term@stages.recover.terms.{term}={term} stages.recover.terms.soft_targets.weight=0 "
        f"stages.recover.terms.{term}.weight=1"
    )


def _general(recipe: str, pretrain: int, epochs: float, settings: str, first: str = "") -> str:
    """Layers of the given teacher that learn from it on the corpus, and then on the tasks."""
    return (
        f"recipe={recipe} stages.pretrain.steps={pretrain} stages.finetune.epochs={epochs} "
        f"stages.finetune.min_steps=0 {settings} {DROPPED} "
        f"pipeline=[{first}pretrain,finetune_teacher,finetune,drop,evaluate]"
    )


HALF = 0.5
_REST = (1 - COST.fitted(ADAPT)) / 2
_HEADLESS = "stages.pretrain.start=teacher stages.pretrain.teacher=teacher"
METHODS = {
    "layer_drop": (
        f"recipe=layer_drop stages.finetune.epochs={BUDGET} stages.finetune.min_steps=0 "
        "pipeline=[finetune_teacher,finetune,evaluate]"
    ),
    "labels": _pruned(
        "prune_layers",
        BUDGET,
        "stages.recover.terms.soft_targets.weight=0 stages.recover.terms.supervised.weight=1",
    ),
    "soft_targets": _pruned("prune_layers", COST.outputs()),
    "patient_kd": _pruned("patient_kd", COST.states()),
    "theseus": (
        f"recipe=theseus stages.replace.epochs={HALF * COST.budget / COST.replacing:.2f} stages.replace.min_steps=0 "
        f"stages.finetune.epochs={HALF * BUDGET} stages.finetune.min_steps=0 {DROPPED} "
        "pipeline=[finetune_teacher,replace,finetune,drop,evaluate]"
    ),
    "rkd": _pruned("rkd", COST.states()),
    "dist": _pruned("dist", COST.outputs()),
    "distilbert": _general(
        "distilbert", COST.corpus(_REST, head=True), COST.outputs(_REST), f"stages.adapt.steps={ADAPT}", "adapt,"
    ),
    "minilm": _general("minilm", COST.corpus(HALF), COST.outputs(HALF), _HEADLESS),
    "minilmv2": _general("minilmv2", COST.corpus(HALF), COST.outputs(HALF), _HEADLESS),
    "tinybert": (
        f"recipe=tinybert transfer=none {_HEADLESS} stages.pretrain.steps={COST.corpus(1 / 3)} "
        f"stages.intermediate.epochs={COST.states(1 / 3)} stages.intermediate.min_steps=0 "
        f"stages.finetune.epochs={COST.outputs(1 / 3)} stages.finetune.min_steps=0 {DROPPED} "
        "pipeline=[pretrain,finetune_teacher,intermediate,finetune,drop,evaluate]"
    ),
    "decoupled_kl": _pruned("prune_layers", COST.outputs(), _outputs("decoupled_kl")),
    "reverse_kl": _pruned("prune_layers", COST.outputs(), _outputs("reverse_kl")),
    "skewed_kl": _pruned("prune_layers", COST.outputs(), _outputs("skewed_kl")),
    "jensen_shannon": _pruned("prune_layers", COST.outputs(), _outputs("jensen_shannon")),
}
"""Method -> its settings. Those of a recipe have its name."""
LABELS = "labels"
"""The control of the methods that start from the fine-tuned teacher: the same layers, trained on the labels alone."""
FROM_TEACHER = tuple(name for name, words in METHODS.items() if "stages.recover." in words and name != LABELS)


def command(method: str, seed: int, glue: Path) -> list[str]:
    """The words after `python` that run a method."""
    given = [f"tasks.path={glue}", f"seed={seed}", f"output={FOLDER}/{method}/seed{seed}"]
    return ["-m", "distill", *METHODS[method].split(), *COMMON.split(), *given]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of the first run that failed, or 0."""
    parser = argparse.ArgumentParser(description="Compare methods of distillation at equal shape and budget.")
    parser.add_argument("glue", type=Path, metavar="GLUE", help="a folder in the layout of nyu-mll/glue")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    asked = parser.parse_args(arguments)
    for seed in asked.seeds:
        for method in asked.methods:
            kept = ROOT / KEPT / method.replace("_", "-") / f"seed{seed}" / "results.json"
            if kept.is_file():
                continue
            words = command(method, seed, asked.glue)
            print(f"$ python {shlex.join(words)}", flush=True)
            if code := subprocess.run([sys.executable, *words], cwd=ROOT, check=False).returncode:
                return code
            keep(ROOT / FOLDER / method / f"seed{seed}" / "results.json", kept)
    return 0


if __name__ == "__main__":
    sys.exit(main())
