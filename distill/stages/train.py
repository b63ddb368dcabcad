"""Train stages: on a corpus (masked-language modelling) or on every task, with or without a teacher."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from hydra.utils import instantiate
from safetensors.torch import save_file
from torch import Tensor, nn

from distill import checkpoint, engine, family, student, teacher
from distill.compress.fake import faked
from distill.compress.gates import L0, Movement, fold, parameter_groups
from distill.compress.importance import SCORES, write
from distill.compress.quantize import linears
from distill.config import Train, fingerprint
from distill.data.align import Aligned, pad_aligned
from distill.data.collate import mask_tokens, pad, token_weights
from distill.data.encode import Encoded, encode_task
from distill.data.tasks import TaskData
from distill.data.windows import split, windows
from distill.evaluate.mixture import average, fit
from distill.evaluate.predict import in_windows, predict
from distill.export.embedder import PROJECTION
from distill.objective import BoundTerm, Objective
from distill.plan import given_student, of_student
from distill.stages.context import APART, TARGETS, Context, drop
from distill.student.training import only_seen, quick_attention

Arrays = dict[str, np.ndarray]


def run(ctx: Context, name: str, settings: Train) -> dict[str, Any]:
    """Train what `settings` say and leave the checkpoint in the stage's folder. Returns its manifest."""
    part = _corpus if settings.data == "corpus" else _tasks
    if settings.role != "teacher" or len(ctx.teachers) == 1:
        return part(ctx, name, settings, 0)
    members = [str(number + 1) for number in range(len(ctx.teachers))]
    made = []
    for number, member in enumerate(members):
        folder = ctx.folder / name / member
        if not checkpoint.finished(folder):
            part(ctx, f"{name}/{member}", settings, number)
        made.append(checkpoint.read_json(folder / checkpoint.MANIFEST))
    manifest: dict[str, Any] = {"members": members} | _sum([m for m in made if "skipped" not in m])
    if all("skipped" in m for m in made):
        manifest["skipped"] = made[0]["skipped"]
    if ctx.accelerator.is_main_process:
        if ctx.config.teacher.weights == "learned" and settings.data == "tasks":
            manifest["weights"] = {t: _weights(ctx, name, members, data) for t, data in ctx.tasks[0].items()}
        checkpoint.write_json(ctx.folder / name / checkpoint.MANIFEST, manifest)
    ctx.accelerator.wait_for_everyone()
    return manifest


def _corpus(ctx: Context, name: str, settings: Train, member: int) -> dict[str, Any]:
    start = ctx.checkpoints(settings.start)[member]
    torch.manual_seed(ctx.config.seed)
    model, has_head = teacher.load_mlm(start)
    if settings.skip_if_mlm_head and has_head:
        manifest = {"skipped": "the teacher has a language-model head", "same_as": settings.start}
        if ctx.accelerator.is_main_process:
            checkpoint.write_json(ctx.folder / name / checkpoint.MANIFEST, manifest)
        ctx.accelerator.wait_for_everyone()
        return manifest
    model = _prepared(ctx, settings, model)
    guides = [] if settings.teacher is None else ctx.checkpoints(settings.teacher)
    online = [_frozen(ctx, teacher.load_mlm(folder)[0]) for folder in guides]
    shares = [1.0] if settings.teacher is None else ctx.weights(settings.teacher)
    corpus, source = ctx.corpus(name.partition("/")[0])
    encoded = corpus.student if isinstance(corpus, Aligned) else corpus
    objective = Objective(model, _terms(settings), online, teacher.pooling(ctx.teacher), shares)
    done = _train(
        ctx,
        name,
        settings,
        objective,
        encoded.lengths,
        _mlm_collate(ctx, name, settings, corpus, model),
        ctx.config.seed,
    )
    manifest = _summary(done) | {"corpus": source, "sequences": len(encoded), "corpus_tokens": len(encoded.ids)}
    pooled = next((label for label, term in objective.terms.items() if term.features == "pooled"), "")
    projection = objective.projections.get_parameter(f"{pooled}.weight") if pooled in objective.projections else None
    _save(ctx, name, model, manifest, _tokenizer(ctx, name, member), projection=projection)
    return manifest


def _tasks(ctx: Context, name: str, settings: Train, member: int) -> dict[str, Any]:
    made = {}
    for task, data in ctx.tasks[0].items():
        folder = ctx.folder / name / task
        if not checkpoint.finished(folder):
            _task(ctx, f"{name}/{task}", settings, data, member)
        made[task] = checkpoint.read_json(folder / checkpoint.MANIFEST)
    manifest = {"tasks": list(made)} | _sum(list(made.values()))
    if ctx.accelerator.is_main_process:
        checkpoint.write_json(ctx.folder / name / checkpoint.MANIFEST, manifest)
    ctx.accelerator.wait_for_everyone()
    return manifest


def _sum(made: list[dict[str, Any]]) -> dict[str, Any]:
    """What several manifests say together."""
    seconds, tokens = sum(m["seconds"] for m in made), sum(m["tokens"] for m in made)
    row = {"steps": sum(m["steps"] for m in made), "tokens": tokens, "seconds": seconds}
    return row | {"tokens_per_second": tokens / max(seconds, 1e-9)}


def _tokenizer(ctx: Context, name: str, member: int) -> Any:
    """Tokenizer of the model that is trained under a name; `member` counts the teachers of an ensemble."""
    whose, own = ctx.tokenizer_of(name.partition("/")[0])
    return ctx.tokenizers[member] if whose == "teacher" else own


def _task(ctx: Context, name: str, settings: Train, data: TaskData, member: int) -> None:
    # Teachers of an ensemble differ in their seed, so that one and the same model makes several.
    seed = ctx.config.seed + member
    torch.manual_seed(seed)
    # A student that is given, or drawn, has nothing of the teacher.
    copied = ctx.config.student.init == "teacher_layers" and not given_student(ctx.config)
    tokenizer = _tokenizer(ctx, name, member)
    model = teacher.load_classifier(
        ctx.checkpoints(settings.start, data.task.name)[member],
        data.task.num_labels,
        ctx.teachers[member] if copied or settings.start == "teacher" else None,
        tokenizer.pad_token_id,
    )
    model = _prepared(ctx, settings, model)
    kept, _ = _kept_apart(ctx, data) if settings.role == "teacher" else (data.train, None)
    encoded = encode_task(kept, data.task.columns, tokenizer, ctx.config.tasks.max_length)
    if settings.role == "teacher" and ctx.config.teacher.window is not None:
        encoded, _ = split(encoded, windows(tokenizer, ctx.config.teacher.window))
    terms = _terms(settings)
    inside = any(term.features != "logits" for term in terms.values())
    guides, targets, began = list[nn.Module](), None, time.monotonic()
    if settings.teacher is not None and inside:
        # Hidden states of every row would fill a disk: the teacher reads along.
        folder = ctx.checkpoint(settings.teacher, data.task.name)
        guide = teacher.load_classifier(folder, data.task.num_labels, pad_id=tokenizer.pad_token_id)
        guides = [_frozen(ctx, guide)]
    elif settings.teacher is not None and any(term.against == "teacher" for term in terms.values()):
        targets = _teacher_logits(ctx, settings.teacher, data)
    waited = time.monotonic() - began

    def collate(rows: np.ndarray, epoch: int) -> Arrays:
        assert encoded.labels is not None
        batch: Arrays = dict(pad(encoded, rows, tokenizer.pad_token_id, tokenizer.padding_side == "left"))
        batch["labels"] = encoded.labels[rows]
        if inside:
            batch["real"] = np.flatnonzero(batch["attention_mask"])
        if targets is not None:
            batch["teacher_logits"] = targets[rows]
        return batch

    gates = _gates(settings, model)
    pooling = teacher.pooling(ctx.teacher) if guides else "mean"
    in_int8 = linears(model) if settings.quantization_aware else []
    with only_seen(model, np.append(encoded.ids, tokenizer.pad_token_id)), faked(model, in_int8):
        objective = Objective(model, terms, guides, pooling, gates=gates)
        done = _train(ctx, name, settings, objective, encoded.lengths, collate, seed)
    done.seconds += waited
    _save(ctx, name, model, _summary(done), tokenizer, gates)


def _gates(settings: Train, model: Any) -> L0 | Movement | None:
    """The gates of a stage. Those of an L0 penalty are held to their shares in every layer, as they are cut."""
    wanted = settings.gates
    if wanted.kind == "none":
        return None
    keep = {"heads": wanted.heads, "ffn": wanted.ffn}
    return L0(model, keep, uniform=True) if wanted.kind == "l0" else Movement(model, keep)


def _teacher_logits(ctx: Context, stage: str, data: TaskData) -> np.ndarray:
    """The teacher's logits [rows, C] of a task: all epochs and students need the same ones, so they are made once."""
    folder = ctx.folder / f"{stage}{TARGETS}" / data.task.name
    manifest = ctx.folder / stage / checkpoint.MANIFEST
    stored = checkpoint.read_json(manifest) if manifest.is_file() else stage
    made_from = fingerprint([stored, ctx.weights(stage, data.task.name)])
    with ctx.main_first():
        if not folder.is_dir() or checkpoint.read_json(folder / checkpoint.MANIFEST) != made_from:
            window = None if of_student(ctx.config, stage) else ctx.config.teacher.window
            answers = [
                _answers(ctx, start, _tokenizer(ctx, stage, member), data, data.train, window)
                for member, start in enumerate(ctx.checkpoints(stage, data.task.name))
            ]
            with checkpoint.writing(folder) as temporary:
                np.save(temporary / "logits.npy", average(answers, ctx.weights(stage, data.task.name)))
                checkpoint.write_json(temporary / checkpoint.MANIFEST, made_from)
    return np.asarray(np.load(folder / "logits.npy"))


def _answers(
    ctx: Context, folder: Path, tokenizer: Any, data: TaskData, rows: Dataset, window: int | None
) -> np.ndarray:
    """Logits [rows, C] of one teacher, which reads the texts in its own tokens."""
    guide = _frozen(ctx, teacher.load_classifier(folder, data.task.num_labels, pad_id=tokenizer.pad_token_id))
    encoded = encode_task(rows, data.task.columns, tokenizer, ctx.config.tasks.max_length)
    run = in_windows(_logits_of(ctx, guide), tokenizer, window)
    return predict(run, encoded, pad_id=tokenizer.pad_token_id, left=tokenizer.padding_side == "left")


def _kept_apart(ctx: Context, data: TaskData) -> tuple[Dataset, Dataset]:
    """Rows to fine-tune teachers on, and those that their weights are learned on."""
    if ctx.config.teacher.weights != "learned":
        return data.train, data.train.select([])
    apart = np.arange(len(data.train)) % APART == APART - 1
    return data.train.select(np.flatnonzero(~apart)), data.train.select(np.flatnonzero(apart))


def _weights(ctx: Context, name: str, members: list[str], data: TaskData) -> list[float]:
    """The share of each teacher that is best on the rows none of them was trained on."""
    _, rows = _kept_apart(ctx, data)
    folders = [ctx.folder / name / member / data.task.name for member in members]
    window = ctx.config.teacher.window
    answers = [_answers(ctx, f, t, data, rows, window) for f, t in zip(folders, ctx.tokenizers, strict=True)]
    return fit(answers, np.asarray(rows["label"]))


def _prepared(ctx: Context, settings: Train, model: Any) -> Any:
    """The student if one is to be built, with the dropout of this stage."""
    if settings.build_student:
        wanted = ctx.config.student
        if wanted.tokenizer is not None:
            own = ctx.student_tokenizer
            model = student.with_vocabulary(model, own, student.pieces(own, ctx.tokenizer))
        layers = wanted.layers or student.half_depth(model.config.num_hidden_layers)
        sizes = {name: getattr(wanted, name) for name in student.SIZES}
        model = student.from_teacher(
            model, layers, init=wanted.init, seed=ctx.config.seed, kind=wanted.family, sizes=sizes
        )
    if settings.dropout is not None:
        student.set_dropout(model, settings.dropout)
    if settings.data == "corpus" and not any(t.features == "logits" and t.weight > 0 for t in settings.terms.values()):
        family.freeze_mlm_head(model)
    return model.to(ctx.accelerator.device)


def _frozen(ctx: Context, model: nn.Module) -> nn.Module:
    """A teacher: eval mode, no gradients, weights in the precision of training."""
    bf16 = ctx.precision == "bf16" and family.family_of(model).bf16
    dtype = torch.bfloat16 if bf16 else torch.float32
    return model.eval().requires_grad_(False).to(ctx.accelerator.device, dtype)


def _logits_of(ctx: Context, model: nn.Module) -> Callable[[Arrays], np.ndarray]:
    def logits(batch: Arrays) -> np.ndarray:
        with torch.no_grad():
            tensors = {key: torch.from_numpy(value).to(ctx.accelerator.device) for key, value in batch.items()}
            result: np.ndarray = model(**family.inputs(model, tensors)).logits.float().cpu().numpy()
        return result

    return logits


def _terms(settings: Train) -> dict[str, BoundTerm]:
    """Terms with a weight, their functions bound to their hyper-parameters."""
    return {
        name: BoundTerm(
            t.weight, t.features, t.against, t.positions, instantiate(t.loss), t.layers, t.teacher_layer, t.heads
        )
        for name, t in settings.terms.items()
        if t.weight > 0
    }


def _mlm_collate(
    ctx: Context, name: str, settings: Train, corpus: Encoded | Aligned, model: Any
) -> Callable[[np.ndarray, int], Arrays]:
    encoded = corpus.student if isinstance(corpus, Aligned) else corpus
    tokenizer = _tokenizer(ctx, name, 0)  # on a corpus all teachers have the same
    specials = np.array(sorted(set(tokenizer.all_special_ids)))
    random_ids = np.setdiff1d(np.arange(len(tokenizer)), specials)
    special = np.zeros(model.config.vocab_size, dtype=bool)
    special[specials] = True
    # Without a language-model term the student reads what the teacher reads.
    masks = any(t.features == "logits" and t.weight > 0 for t in settings.terms.values())
    weights = token_weights(encoded, model.config.vocab_size, list(specials), settings.masking.smoothing)

    def collate(rows: np.ndarray, epoch: int) -> Arrays:
        batch: Arrays = dict(pad(encoded, rows, tokenizer.pad_token_id))
        ids, real = batch["input_ids"], batch["attention_mask"].astype(bool)
        batch["input_ids"], chosen = mask_tokens(
            ids,
            real & ~special[ids] & masks,
            rows,
            seed=ctx.config.seed,
            epoch=epoch,
            probability=settings.masking.probability,
            mask_id=tokenizer.mask_token_id,
            random_ids=random_ids,
            weights=weights,
        )
        batch |= {"masked": np.flatnonzero(chosen), "real": np.flatnonzero(real), "labels": ids[chosen]}
        if isinstance(corpus, Aligned) and settings.teacher is not None:
            batch |= pad_aligned(corpus, rows, ids.shape[1], ctx.tokenizer.pad_token_id)
        return batch

    return collate


def _train(
    ctx: Context,
    name: str,
    settings: Train,
    objective: Objective,
    lengths: np.ndarray,
    collate: Callable[[np.ndarray, int], Arrays],
    seed: int,
) -> engine.Trained:
    named = [(name, p) for name, p in objective.named_parameters() if p.requires_grad]
    named = [(name, p) for name, p in named if not name.startswith("gates.")]
    # Norms and biases are not decayed, as in BERT.
    groups = [
        {"params": [p for _, p in named if p.ndim > 1]},
        {"params": [p for _, p in named if p.ndim <= 1], "weight_decay": 0.0},
    ]
    if objective.gates is not None:
        groups += parameter_groups(objective.gates, settings.gates.lr)
    with quick_attention(objective.student, lengths):
        return engine.train(
            objective,
            lengths,
            collate,
            name=name,
            settings=settings,
            seed=seed,
            most_steps=ctx.config.limit.steps,
            optimizer=instantiate(settings.optimizer)(groups),
            schedule=instantiate(settings.schedule),
            accelerator=ctx.accelerator,
            state_folder=_state(ctx, name),
            console=ctx.console,
        )


def _summary(done: engine.Trained) -> dict[str, Any]:
    return {
        "steps": done.steps,
        "tokens": done.tokens,
        "seconds": done.seconds,
        "tokens_per_second": done.tokens / max(done.seconds, 1e-9),
        "log": done.log,
    }


def _state(ctx: Context, name: str) -> Path:
    return ctx.folder / f"{name}.state"


def _save(
    ctx: Context,
    name: str,
    model: Any,
    manifest: dict[str, Any],
    tokenizer: Any,
    gates: L0 | Movement | None = None,
    projection: Tensor | None = None,
) -> None:
    """Write the model; where it was trained with gates, as it is with them, and what they have learnt; and the map
    [D, H] from its pooled vectors to the teacher's, where it learnt one.
    """
    if ctx.accelerator.is_main_process:
        if gates is not None:
            heads, ffn, _ = gates.eval().masks(1.0)
            fold(model, heads, ffn)
        with ctx.writing(ctx.folder / name, model, tokenizer, manifest) as temporary:
            if gates is not None:
                write(gates.scores(), temporary / SCORES)
            if projection is not None:
                (temporary / PROJECTION).mkdir()
                weight = {"linear.weight": projection.detach().float().cpu()}
                save_file(weight, temporary / PROJECTION / "model.safetensors")
        drop(_state(ctx, name))
    ctx.accelerator.wait_for_everyone()
