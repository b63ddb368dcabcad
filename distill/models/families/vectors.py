"""How the hidden states of a sentence embedder become vectors, in the files of sentence-transformers. Without torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from distill.errors import DataError
from distill.models.families.foreign import check_pickled_head
from distill.models.families.sentence import (
    ALONE,
    LENGTHS,
    MODEL,
    MODULES,
    modules_of,
    readable,
    reading,
    save_again,
    settings_in,
    settings_of,
)
from distill.models.families.weights import check_inside, opened
from distill.runtime.storage.atomic import read_json, write_json

KEY = "sentence_embedding"
"""Setting in the config of an embedder's encoder that has the fields of `Vectors`. transformers ignores it."""

POOLING = {
    "mean": "pooling_mode_mean_tokens",
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""Pooling -> its key in the settings of sentence-transformers."""

_ALWAYS = ("mean", "cls", "max", "mean_sqrt_len_tokens")
"""Poolings that have a key in every file: version 2.0 knows no others."""

ORDERS = tuple(
    ("Transformer", "Pooling", *["Dense"] * dense, *normalize)
    for dense in range(3)
    for normalize in ((), ("Normalize",))
)
"""Modules of the embedders that are supported, in their order."""

DENSE_FOLDER = "2_Dense"
_LINEAR, _TANH = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh"
_CLASS, _VECTOR = "sentence_transformers.models.", "sentence_embedding"

QUERY, DOCUMENT = ("query",), ("document", "passage", "corpus")
"""Usual names of the prompts before a query and before a document."""


@dataclass(frozen=True)
class Vectors:
    """The modules after the encoder, and what is done to texts before it."""

    pooling: str = "mean"
    """How the hidden states of a text become one vector: a key of `POOLING`."""
    width: int | None = None
    """Number of outputs D of the linear layer after the pooling; None without such a layer."""
    bias: bool = False
    tanh: bool = False
    """Whether the linear layer has a bias, and is followed by the hyperbolic tangent."""
    normalized: bool = True
    """Whether vectors are divided by their length."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Name -> what is put before a text."""
    default_prompt: str | None = None
    """Name of the prompt that is put before every text, unless another is chosen; None without."""
    similarity: str = "cosine"
    """How two vectors are compared: cosine, dot, euclidean or manhattan."""
    lower: bool = False
    """Whether texts are lower-cased before the tokenizer."""

    @property
    def pair_of_prompts(self) -> tuple[str, str]:
        """The prompts before a query and before a document; empty where they are unknown."""
        query, document = (
            next((self.prompts[n] for n in names if n in self.prompts), "") for names in (QUERY, DOCUMENT)
        )
        return query, document

    @property
    def prompt(self) -> str:
        """The prompt before every text, unless another one is chosen."""
        return "" if self.default_prompt is None else self.prompts.get(self.default_prompt, "")


def of_config(config: Any) -> Vectors:
    """The modules of an embedder whose encoder has this config; mean pooling if it states nothing."""
    return Vectors(**getattr(config, KEY, {}))


def into_config(config: Any, vectors: Vectors) -> None:
    """Store the modules in the encoder's config, so that a model can be built from it alone."""
    setattr(config, KEY, asdict(vectors))


def keep_width(config: Any, width: int) -> None:
    """Store in the config of a narrower embedder the linear layer by which its vectors keep this width, as in a model
    of `embedding.keeping_width`. A config with a linear layer is not changed."""
    if (vectors := of_config(config)).width is None:
        into_config(config, replace(vectors, width=width))


def embeds(folder: str | Path) -> bool:
    """Whether a folder holds a sentence embedder: it lists modules, one of which pools.

    Raises:
        DataError: for a list that cannot be read.
    """
    file = Path(folder) / MODULES
    return file.is_file() and "Pooling" in [name for name, _ in modules_of(file)]


def read(folder: str | Path) -> Vectors | None:
    """The modules in a folder of sentence-transformers.

    None for a folder without a list of modules, and for a cross-encoder whose only module is a classifier.

    Raises:
        DataError: for modules and settings that are not supported, and for files that cannot be read.
    """
    with readable(folder):
        return _read(Path(folder))


def prompt(folder: str | Path) -> str:
    """The prompt before every text in a folder of sentence-transformers; empty for any other folder. As from `read`,
    without a look at the weights."""
    file = Path(folder) / MODEL
    with readable(folder):
        stated = settings_of(file) if (Path(folder) / MODULES).is_file() else {}
        return _with_prompts(Vectors(), stated, file).prompt


def _read(folder: Path) -> Vectors | None:
    if not (folder / MODULES).is_file():
        return None
    modules, stored = modules_of(folder / MODULES), settings_of(folder / MODEL)
    names, paths = tuple(name for name, _ in modules), [path for _, path in modules]
    if stored.get("model_type") == "CrossEncoder" and names == ("Transformer",):
        return None
    _check_modules(folder, stored, names, paths)
    check_pickled_head(folder)
    file = folder / paths[1] / "config.json"
    vectors = _with_prompts(Vectors(_pooling(file), lower=reading(folder).lower), stored, folder / MODEL)
    _check_prompted(file, vectors.prompts.values())
    for name, path in modules:
        vectors = _with_dense(vectors, folder / path) if name == "Dense" else vectors
    if "Normalize" in names:
        _check_input(folder / paths[-1] / "config.json")
    return replace(vectors, normalized="Normalize" in names)


def _check_modules(folder: Path, stored: Mapping[str, Any], names: tuple[str, ...], paths: list[str]) -> None:
    if (model := stored.get("model_type") or "SentenceTransformer") != "SentenceTransformer":
        raise DataError(
            f"{folder / MODEL}: got a {model} of the modules {', '.join(names)}; must be a SentenceTransformer, or a "
            f"CrossEncoder that is a classifier of transformers; {ALONE}"
        )
    if names not in ORDERS:
        shown = " or ".join(", ".join(order) for order in ORDERS)
        raise DataError(f"{folder / MODULES}: got the modules {', '.join(names)}; must be {shown}; {ALONE}")
    if paths[0]:
        raise DataError(
            f"{folder / MODULES}: got the Transformer in the folder {paths[0]}; must be in the folder itself; "
            f"{save_again(folder)}"
        )


def check_cosines(folder: str | Path) -> None:
    """Raise DataError for an embedder whose vectors are not compared by their cosine.

    Dot products of vectors of length 1 are cosines.
    """
    found = read(folder)
    if found is None or found.similarity == "cosine" or (found.similarity == "dot" and found.normalized):
        return
    raise DataError(
        f"{Path(folder) / MODEL}: got similarity_fn_name {found.similarity}; must be cosine, because students "
        "learn and are scored by cosines, not by the lengths of vectors; to distil their directions alone, set "
        "similarity_fn_name to cosine in a copy of the folder"
    )


def _pooling(file: Path) -> str:
    """The one pooling of the settings in a file, read as sentence-transformers 6 reads them."""
    settings = settings_in(file)
    stated = settings.get("pooling_mode") or [how for how, key in POOLING.items() if settings.get(key)] or "mean"
    modes = [stated] if isinstance(stated, str) else list(stated)
    if len(modes) != 1 or modes[0] not in POOLING:
        got = f"the pooling {', '.join(map(str, modes))}"
        raise DataError(f"{file}: got {got}; must be one of {', '.join(POOLING)}; {ALONE}")
    return str(modes[0])


def check_prompted(folder: str | Path, prompts: Iterable[str]) -> None:
    """Raise DataError for an embedder that leaves the tokens of its prompt out of the pooling, if a prompt is put
    before texts."""
    if embeds(folder):
        path = next(path for name, path in modules_of(Path(folder) / MODULES) if name == "Pooling")
        _check_prompted(Path(folder) / path / "config.json", prompts)


def _check_prompted(file: Path, prompts: Iterable[str]) -> None:
    if any(prompts) and not settings_in(file).get("include_prompt", True):
        raise DataError(
            f"{file}: got include_prompt false, and a prompt before texts; must be true, because a prompt is pooled as "
            f"any other text is; {ALONE}"
        )


def _with_dense(vectors: Vectors, folder: Path) -> Vectors:
    """The vectors with the linear layer of a folder, with the defaults of sentence-transformers.

    Two linear layers without an activation between them are one.
    """
    file, settings = folder / "config.json", settings_in(folder / "config.json")
    activation = settings.get("activation_function", _TANH)
    name = str(activation).rpartition(".")[2] if str(activation).startswith("torch.nn.") else ""
    if name not in ("Identity", "Tanh") or settings.get("use_residual"):
        raise DataError(f"{file}: got {activation}; must be {_LINEAR} or {_TANH}, without a residual; {ALONE}")
    if vectors.tanh:
        raise DataError(f"{file}: got a Dense after one with {_TANH}; must be after one with {_LINEAR}; {ALONE}")
    _check_input(file)
    width, bias = settings.get("out_features"), bool(settings.get("bias", True))
    inputs = settings.get("in_features")
    if vectors.width not in (None, inputs):
        raise DataError(
            f"{file}: got in_features {inputs}; must be {vectors.width}, the width of the Dense before it; copy or "
            "download the folder again"
        )
    weights, shapes = folder / "model.safetensors", dict[str, list[int]]()
    if not weights.is_file():
        raise DataError(f"{weights}: got no such file; must have the weights of the Dense; {save_again(folder.parent)}")
    check_inside(folder.parent, weights)
    with opened(weights) as tensors:
        shapes = {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}
    wanted: dict[str, list[Any]] = {"linear.weight": [width, inputs]}
    wanted |= {"linear.bias": [width]} if bias else {}
    if shapes != wanted:
        raise DataError(
            f"{weights}: got {_shown(shapes)}; must be {_shown(wanted)}, as {file} states; copy or download both again"
        )
    return replace(vectors, width=width, bias=bias or vectors.bias, tanh=name == "Tanh")


def _shown(shapes: Mapping[str, list[int]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in sorted(shapes.items())) or "no tensor"


def _check_input(file: Path) -> None:
    """Raise DataError for a module that reads or writes something else than the vectors of texts."""
    settings = settings_of(file)
    for key in ("module_input_name", "module_output_name"):
        if (name := settings.get(key) or _VECTOR) != _VECTOR:
            raise DataError(f"{file}: got {key} {name}; must be {_VECTOR}; {ALONE}")


def _with_prompts(vectors: Vectors, stored: Mapping[str, Any], file: Path) -> Vectors:
    """The vectors with the entries of `MODEL`."""
    if (cut := stored.get("truncate_dim")) is not None:
        raise DataError(
            f"{file}: got truncate_dim {cut}; must be left out, because vectors are used whole; remove the entry from "
            "a copy of the folder"
        )
    prompts = {str(name): str(text or "") for name, text in (stored.get("prompts") or {}).items()}
    default, similarity = stored.get("default_prompt_name"), stored.get("similarity_fn_name") or "cosine"
    if default is not None and default not in {*prompts, "query", "document"}:  # every embedder has these two there
        raise DataError(
            f"{file}: got default_prompt_name {default!r}; must be of the prompts ({', '.join(prompts) or 'none'}), or "
            "null; correct it"
        )
    return replace(vectors, prompts=prompts, default_prompt=default, similarity=str(similarity))


def dense_files(folder: str | Path) -> list[Path]:
    """The weights of each linear layer of an embedder."""
    paths = [path for name, path in modules_of(Path(folder) / MODULES) if name == "Dense"]
    return [Path(folder) / path / "model.safetensors" for path in paths]


def write(folder: Path, vectors: Vectors, hidden: int, encoder_arguments: Mapping[str, Any]) -> None:
    """Write all files of sentence-transformers except weights and tokenizer.

    Args:
        hidden: width of the encoder's hidden states.
        encoder_arguments: arguments of the encoder's class, such as that it has no pooler.
    """
    modules: list[tuple[str, str, dict[str, Any] | None]] = [("", "Transformer", None)]
    modes = {POOLING[name]: name == vectors.pooling for name in dict.fromkeys([*_ALWAYS, vectors.pooling])}
    modules.append(("1_Pooling", "Pooling", {"word_embedding_dimension": hidden} | modes))
    if vectors.width is not None:
        sizes: dict[str, Any] = {"in_features": hidden, "out_features": vectors.width, "bias": vectors.bias}
        activation = {"activation_function": _TANH if vectors.tanh else _LINEAR}
        modules.append((DENSE_FOLDER, "Dense", sizes | activation))
    if vectors.normalized:
        modules.append((f"{len(modules)}_Normalize", "Normalize", None))
    for name, _, settings in modules[1:]:
        (folder / name).mkdir(exist_ok=True)
        if settings is not None:
            write_json(folder / name / "config.json", settings)
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"{_CLASS}{name}"}
        for number, (path, name, _) in enumerate(modules)
    ]
    write_json(folder / MODULES, listed)
    write_json(folder / LENGTHS, {"do_lower_case": vectors.lower, "model_args": dict(encoder_arguments)})
    write_json(folder / MODEL, stated(vectors))


def stated(vectors: Vectors) -> dict[str, Any]:
    """The content of `MODEL`."""
    prompts = {"prompts": dict(vectors.prompts), "default_prompt_name": vectors.default_prompt}
    return prompts | {"similarity_fn_name": vectors.similarity}


def with_prompts(student: Vectors, given: Vectors, pair: Sequence[str], grouped: bool) -> Vectors:
    """The modules of a student with the prompts with which it was trained.

    Args:
        given: the modules of its teacher.
        pair: what was put before first and second texts; empty without prompts.
        grouped: whether these are queries and documents.
    """
    if not grouped and (not pair or tuple(pair) == (given.prompt, given.prompt)):
        return replace(student, prompts=given.prompts, default_prompt=given.default_prompt)
    if not grouped and len(set(pair)) == 1:
        return replace(student, prompts={**given.prompts, "text": pair[0]}, default_prompt="text")
    # sentence-transformers has an empty prompt of these names in every model, which would hide passage and corpus.
    named = dict(zip((QUERY[0], DOCUMENT[0]), pair or ("", ""), strict=True))
    return replace(student, prompts={**given.prompts, **named}, default_prompt=None)


def finish(folder: Path, longest: int, vectors: Vectors) -> None:
    """State the maximum number of tokens of a text, and the prompts, in the files of an embedder, and of each quantized
    form of it in its folder."""
    for file in sorted(folder.rglob(LENGTHS)):
        write_json(file, read_json(file) | {"max_seq_length": longest})
        write_json(file.with_name(MODEL), stated(vectors))


def stored(folder: Path) -> list[Path]:
    """The files and folders of an embedder besides weights, config and tokenizer of its encoder."""
    paths = [path for _, path in modules_of(folder / MODULES) if path and (folder / path).is_dir()]
    return [folder / name for name in (MODULES, LENGTHS, MODEL, *paths)]
