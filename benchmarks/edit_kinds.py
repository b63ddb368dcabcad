"""The inputs of small runs, written from scratch, and random edits of them, for benchmarks/edits.py."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

WORDS = "good evil boat card day night red blue fast slow small old".split()
LABELS = ("no", "yes")
SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 40}
LOSS = "outside_loss.py"
"""The user's own module, with a loss that distill does not have."""
OWN_LOSS = """from outside_helper import FACTOR


def scaled(student, teacher, *, temperature=1.0):
    return FACTOR * ((student - teacher) ** 2).mean(-1) / temperature
"""

SMALL = (
    "limit.steps=2", "tasks.max_length=16", "device=cpu", "threads=1", "precision=fp32", "transfer=none",
    "corpus.max_length=16",
)  # fmt: skip
ON_TASK = ("recipe=task", "teacher=hub", "teacher.name=teacher", "student.name=student", "tasks=own",
           "tasks.train=rows.csv", "tasks.name=own")  # fmt: skip
ON_CORPUS = ("teacher=hub", "corpus=text", "corpus.path=corpus.txt")

RECIPES: dict[str, tuple[str, ...]] = {
    "rows": (
        *ON_TASK, *SMALL, "pipeline=[finetune_teacher,finetune,quantize]", "stages.quantize.schemes=[bitsandbytes]",
        "stages.finetune_teacher.skip_if_head=false",
    ),
    "as given": (*ON_TASK, *SMALL, "pipeline=[finetune]", "stages.finetune.teacher=teacher"),
    "corpus": ("recipe=distilbert", *ON_CORPUS, "teacher.name=encoder", *SMALL, "pipeline=[adapt,pretrain]"),
    "embedder": ("recipe=embedder", *ON_CORPUS, "teacher.name=embedder", *SMALL, "pipeline=[pretrain]"),
    "transfer": (
        *ON_TASK, *SMALL[:-2], "transfer=mixed", "transfer.files=more.csv", "transfer.passes=0", SMALL[-1],
        "pipeline=[finetune_teacher,finetune]",
    ),
    "prune": (
        "recipe=prune", *ON_TASK[1:3], *ON_TASK[4:], *SMALL, "target.speedup=null", "student.num_hidden_layers=2",
        "stages.prune.examples=32", "pipeline=[finetune_teacher,prune,recover]",
    ),
    "smoke": (
        "recipe=distilbert", "limit=smoke", "corpus=text", "corpus.path=corpus.txt", *SMALL,
        "pipeline=[adapt,pretrain]",
    ),
    "own loss": (
        *ON_TASK, *SMALL, "pipeline=[finetune_teacher,finetune]",
        "stages.finetune.terms.soft_targets.loss._target_=outside_loss.scaled",
    ),
}  # fmt: skip
"""Name -> the settings of a short run on the inputs of `write`."""
WITH_ROWS = ("rows", "as given", "transfer", "prune", "own loss")
WITH_STUDENT = ("rows", "as given", "transfer", "own loss")
WITH_CORPUS = ("corpus", "embedder", "smoke")
TEACHER = {"corpus": "encoder", "embedder": "embedder"} | dict.fromkeys(WITH_ROWS, "teacher")


def write(home: Path) -> None:
    """Write the inputs of all runs: models, rows, a corpus, and a module of the user's own."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel

    from distill.models.families import vectors

    tokenizer = _tokenizer(home)
    names = {"id2label": dict(enumerate(LABELS)), "label2id": {name: number for number, name in enumerate(LABELS)}}
    kinds: dict[str, tuple[Any, int, dict[str, Any]]] = {
        "teacher": (BertForSequenceClassification, 3, names | {"initializer_range": 0.5}),
        "student": (BertModel, 2, {}),
        "encoder": (BertForMaskedLM, 3, {}),
        "embedder": (BertModel, 3, {"initializer_range": 0.2}),
    }
    for number, (name, (kind, layers, settings)) in enumerate(kinds.items()):
        torch.manual_seed(number)
        config = BertConfig(vocab_size=len(tokenizer), num_hidden_layers=layers, **SIZES, **settings)
        kind(config).save_pretrained(home / name)
        tokenizer.save_pretrained(home / name)
    vectors.write(home / "embedder", vectors.Vectors(), 16, {})
    rng = random.Random(0)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(4, 9))) for _ in range(160)]
    rows = [f"{text},{LABELS[rng.randrange(2)]}" for text in texts[:64]]
    (home / "rows.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    (home / "more.csv").write_text("\n".join(["text", *texts[64:112]]) + "\n")
    (home / "corpus.txt").write_text("\n".join(f"{one} {two}." for one, two in zip(texts, texts[::-1], strict=True)))
    (home / LOSS).write_text(OWN_LOSS)
    (home / "outside_helper.py").write_text("FACTOR = 1.5\n")


def _tokenizer(home: Path) -> Any:
    from transformers import BertTokenizer

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pieces = [*special, ".", *letters, *(f"##{letter}" for letter in letters), *WORDS]
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)}, model_max_length=40)


@dataclass(frozen=True)
class Kind:
    """A kind of edit."""

    edit: Callable[[Path, str, random.Random], str]
    """(folder of the inputs, recipe, random numbers) -> what was edited."""
    recipes: tuple[str, ...] = tuple(RECIPES)
    irrelevant: bool = False
    """Whether nothing may be made again."""


def quietly(file: Path, content: bytes) -> None:
    """Give a file another content and the times that it had."""
    times = file.stat()
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def _json(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def _word(file: Path, rng: random.Random, first: int) -> str:
    """Replace a word by one of the same length, with the time of the file kept."""
    lines = _lines(file)
    number = rng.randrange(first, len(lines))
    words = lines[number].split(",")[0].split(" ")
    place = rng.randrange(len(words))
    same = [word for word in WORDS if len(word) == len(words[place]) and word != words[place]]
    before, words[place] = words[place], rng.choice(same or ["x" * len(words[place])])
    lines[number] = ",".join([" ".join(words), *lines[number].split(",")[1:]])
    quietly(file, ("\n".join(lines) + "\n").encode())
    return f"{file.name}, line {number + 1}: {before} -> {words[place]}"


def cell(home: Path, recipe: str, rng: random.Random) -> str:
    return _word(home / "rows.csv", rng, 1)


def transfer_row(home: Path, recipe: str, rng: random.Random) -> str:
    return _word(home / "more.csv", rng, 1)


def corpus_line(home: Path, recipe: str, rng: random.Random) -> str:
    return _word(home / "corpus.txt", rng, 0)


def labels(home: Path, recipe: str, rng: random.Random) -> str:
    """Exchange the labels of two rows."""
    lines = _lines(home / "rows.csv")
    of = {label: [n for n, line in enumerate(lines) if line.endswith(f",{label}")] for label in LABELS}
    pair = [rng.choice(of[label]) for label in LABELS]
    for number, label in zip(pair, reversed(LABELS), strict=True):
        lines[number] = f"{lines[number].split(',')[0]},{label}"
    quietly(home / "rows.csv", ("\n".join(lines) + "\n").encode())
    return f"rows.csv: the labels of lines {pair}"


def order(home: Path, recipe: str, rng: random.Random) -> str:
    lines = _lines(home / "rows.csv")
    one, two = rng.sample(range(1, len(lines)), 2)
    lines[one], lines[two] = lines[two], lines[one]
    quietly(home / "rows.csv", ("\n".join(lines) + "\n").encode())
    return f"rows.csv: lines {one} and {two} are exchanged"


def label_order(home: Path, recipe: str, rng: random.Random) -> str:
    names = dict(enumerate(reversed(LABELS)))
    file = home / "teacher" / "config.json"
    _json(file, id2label=names, label2id={name: number for number, name in names.items()})
    return "teacher/config.json: id2label"


def tokenizer(home: Path, recipe: str, rng: random.Random) -> str:
    """Change one of the settings of the tokenizer of the teacher or of the student."""
    folder = home / rng.choice([TEACHER[recipe], *(["student"] if recipe in WITH_STUDENT else [])])
    settings, fast = folder / "tokenizer_config.json", folder / "tokenizer.json"
    what = rng.choice(["lower case", "longest", "truncation side", "padding side", "added token", "special token"])
    if what == "lower case":
        content = json.loads(fast.read_text())
        content["normalizer"] = content["normalizer"] | {"lowercase": not content["normalizer"].get("lowercase")}
        fast.write_text(json.dumps(content))
        _json(settings, do_lower_case=content["normalizer"]["lowercase"])
    elif what == "longest":
        _json(settings, model_max_length=12)
    elif what == "truncation side":
        _json(settings, truncation_side="left")
    elif what == "padding side":
        _json(settings, padding_side="left")
    elif what == "added token":
        content = json.loads(fast.read_text())
        token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
        content["added_tokens"].append({"id": content["model"]["vocab"]["boat"], "content": "boat", **token})
        fast.write_text(json.dumps(content))
    else:
        _json(settings, mask_token="[UNK]")
    return f"{folder.name}: {what} of the tokenizer"


def pooling(home: Path, recipe: str, rng: random.Random) -> str:
    modes = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    _json(home / "embedder" / "1_Pooling" / "config.json", **modes)
    return "embedder: pooling"


def prompts(home: Path, recipe: str, rng: random.Random) -> str:
    _json(home / "embedder" / "config_sentence_transformers.json", prompts={"q": "good "}, default_prompt_name="q")
    return "embedder: prompts"


def _weight(folder: Path, rng: random.Random) -> str:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    name = rng.choice(sorted(name for name in tensors if "layer.0" in name and name.endswith("weight")))
    changed = tensors[name].copy()
    changed.flat[rng.randrange(changed.size)] += np.float32(0.5)
    again = folder / "again.safetensors"
    save_file(tensors | {name: changed}, again, {"format": "pt"})
    quietly(file, again.read_bytes())
    again.unlink()
    return f"{folder.name}: a value of {name}"


def teacher_weight(home: Path, recipe: str, rng: random.Random) -> str:
    return _weight(home / TEACHER[recipe], rng)


def student_weight(home: Path, recipe: str, rng: random.Random) -> str:
    return _weight(home / "student", rng)


def linked_weights(home: Path, recipe: str, rng: random.Random) -> str:
    """Put other weights behind a symbolic link in the place of the file."""
    folder = home / TEACHER[recipe]
    said = _weight(folder, rng)
    (folder / "kept").mkdir()
    (folder / "model.safetensors").rename(folder / "kept" / "of-today.safetensors")
    (folder / "model.safetensors").symlink_to(Path("kept", "of-today.safetensors"))
    return f"{said}, through a link"


def own_loss(home: Path, recipe: str, rng: random.Random) -> str:
    quietly(home / LOSS, OWN_LOSS.replace("** 2", "** 4").encode())
    return f"{LOSS}: another power"


def own_helper(home: Path, recipe: str, rng: random.Random) -> str:
    quietly(home / "outside_helper.py", b"FACTOR = 7.5\n")
    return "outside_helper.py: another factor"


def nothing(home: Path, recipe: str, rng: random.Random) -> str:
    return "nothing"


def card(home: Path, recipe: str, rng: random.Random) -> str:
    (home / TEACHER[recipe] / "README.md").write_text(f"another card {rng.random()}")
    (home / "notes.txt").write_text("beside the inputs")
    return "a model card, and a file that nothing reads"


def in_the_cache(home: Path, recipe: str, rng: random.Random) -> str:
    """Change a bit of a file in the cache, in place."""
    cached = home / "cache"
    files = sorted(file for file in cached.rglob("*") if file.is_file() and file.stat().st_size and file.name[0] != ".")
    file = rng.choice(files)
    content = bytearray(file.read_bytes())
    content[rng.randrange(len(content))] ^= 1
    quietly(file, bytes(content))
    return f"a bit of {file.relative_to(home)}"


def part_is_removed(home: Path, recipe: str, rng: random.Random) -> str:
    """Remove the manifest of a finished step, of which other parts stay, and edit an input."""
    manifests = sorted((home / "run").glob("*/manifest.json"))
    gone = rng.choice(manifests)
    gone.unlink()
    return f"{gone.relative_to(home)} is removed; {input_of(recipe, rng).edit(home, recipe, rng)}"


def step_is_removed(home: Path, recipe: str, rng: random.Random) -> str:
    """Remove the folder of a finished step."""
    gone = rng.choice(sorted(path.parent for path in (home / "run").glob("*/manifest.json")))
    shutil.rmtree(gone)
    return f"{gone.relative_to(home)} is removed"


def input_of(recipe: str, rng: random.Random) -> Kind:
    """A kind of edit of an input of a recipe."""
    names = ("cell", "teacher weight", "corpus line", "transfer row", "student weight", "label order", "own loss")
    return rng.choice([KINDS[name] for name in names if recipe in KINDS[name].recipes])


KINDS: dict[str, Kind] = {
    "cell": Kind(cell, WITH_ROWS),
    "labels": Kind(labels, WITH_ROWS),
    "order of rows": Kind(order, WITH_ROWS),
    "label order": Kind(label_order, WITH_ROWS),
    "tokenizer": Kind(tokenizer, tuple(TEACHER)),
    "pooling": Kind(pooling, ("embedder",)),
    "prompts": Kind(prompts, ("embedder",)),
    "teacher weight": Kind(teacher_weight, tuple(TEACHER)),
    "student weight": Kind(student_weight, WITH_STUDENT),
    "linked weights": Kind(linked_weights, tuple(TEACHER)),
    "corpus line": Kind(corpus_line, WITH_CORPUS),
    "transfer row": Kind(transfer_row, ("transfer",)),
    "own loss": Kind(own_loss, ("own loss",)),
    "own helper": Kind(own_helper, ("own loss",)),
    "in the cache": Kind(in_the_cache, tuple(TEACHER)),
    "part is removed": Kind(part_is_removed),
    "step is removed": Kind(step_is_removed),
    "nothing": Kind(nothing, irrelevant=True),
    "card": Kind(card, tuple(TEACHER), irrelevant=True),
    "environment": Kind(nothing, tuple(recipe for recipe in RECIPES if recipe != "own loss")),
    "seed": Kind(nothing),
    "package": Kind(nothing),
    "killed": Kind(lambda home, recipe, rng: input_of(recipe, rng).edit(home, recipe, rng)),
    "during": Kind(lambda home, recipe, rng: input_of(recipe, rng).edit(home, recipe, rng)),
}
"""Name -> kind. The last five are edits of more than files, which benchmarks/edits.py makes."""
