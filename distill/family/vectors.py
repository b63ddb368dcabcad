"""How the hidden states of a sentence embedder become vectors, in the files of sentence-transformers. Without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from distill.checkpoint import read_json, write_json
from distill.errors import DataError

KEY = "sentence_embedding"
"""Setting in the config of an embedder's encoder that has the fields of `Vectors`. transformers ignores it."""

POOLING = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
"""Pooling -> its key in the settings of sentence-transformers."""

MODULES, LENGTHS, MODEL = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
"""Files of an embedder: its modules in their order, the maximum length of a text, and its prompts."""

ORDERS = tuple(
    ("Transformer", "Pooling", *dense, *normalize) for dense in ((), ("Dense",)) for normalize in ((), ("Normalize",))
)
"""Modules of the embedders that are supported, in their order."""

DENSE_FOLDER = "2_Dense"
_LINEAR, _TANH = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh"
_CLASS = "sentence_transformers.models."

QUERY, DOCUMENT = ("query",), ("document", "passage", "corpus")
"""Usual names of the prompts before a query and before a document."""


@dataclass(frozen=True)
class Vectors:
    """The modules after the encoder."""

    pooling: str = "mean"
    """How the hidden states of a text become one vector: mean, cls or max."""
    width: int | None = None
    """Number of outputs D of the linear layer after the pooling; None without such a layer."""
    bias: bool = False
    tanh: bool = False
    """Whether the linear layer has a bias, and is followed by the hyperbolic tangent."""
    normalized: bool = True
    """Whether vectors are divided by their length."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Name -> what is put before a text."""

    @property
    def pair_of_prompts(self) -> tuple[str, str]:
        """What is put before a query and before a document; empty where it is unknown."""
        query, document = (
            next((self.prompts[n] for n in names if n in self.prompts), "") for names in (QUERY, DOCUMENT)
        )
        return query, document


def of_config(config: Any) -> Vectors:
    """The modules of an embedder whose encoder has this config; mean pooling if it states nothing."""
    return Vectors(**getattr(config, KEY, {}))


def into_config(config: Any, vectors: Vectors) -> None:
    """Store the modules in the encoder's config, so that a model can be built from it alone."""
    setattr(config, KEY, asdict(vectors))


def embeds(folder: str | Path) -> bool:
    """Whether a folder is that of a sentence embedder: it lists modules, one of which pools. OSError or ValueError for
    a list that cannot be read."""
    file = Path(folder) / MODULES
    return file.is_file() and "Pooling" in [name for name, _ in _modules(file)]


def read(folder: str | Path) -> Vectors | None:
    """The modules in a folder of sentence-transformers; None for a folder without a list of modules.

    Raises:
        DataError: for modules that are not supported.
        OSError, ValueError, KeyError, TypeError: for files that cannot be read.
    """
    folder = Path(folder)
    if not (folder / MODULES).is_file():
        return None
    modules = _modules(folder / MODULES)
    names, paths = tuple(name for name, _ in modules), [path for _, path in modules]
    if names not in ORDERS or paths[0]:
        shown = " or ".join(", ".join(order) for order in ORDERS)
        raise DataError(
            f"{folder / MODULES}: got the modules {', '.join(names)}; must be {shown}, with the model in the folder "
            "itself; choose another embedder"
        )
    settings = read_json(folder / paths[1] / "config.json")
    chosen = [how for how, key in POOLING.items() if settings.get(key) or settings.get("pooling_mode") in (how, [how])]
    others = [key for key, flag in settings.items() if key.startswith("pooling_mode_") and flag is True]
    if len(chosen) != 1 or len(others) > 1 or settings.get("include_prompt") is False:
        raise DataError(
            f"{folder / paths[1] / 'config.json'}: got {settings}; must be one of {', '.join(POOLING)}, with the "
            "prompt; choose another embedder"
        )
    dense = read_json(folder / paths[2] / "config.json") if "Dense" in names else {}
    activation = dense.get("activation_function", _LINEAR)
    if activation not in (_LINEAR, _TANH) or dense.get("use_residual"):
        raise DataError(
            f"{folder / paths[2] / 'config.json'}: got {activation}; must be {_LINEAR} or {_TANH}, without a residual; "
            "choose another embedder"
        )
    stored = read_json(folder / MODEL) if (folder / MODEL).is_file() else {}
    prompts = {str(name): str(text) for name, text in (stored.get("prompts") or {}).items()}
    return Vectors(
        chosen[0],
        dense.get("out_features"),
        bool(dense.get("bias")),
        activation == _TANH,
        "Normalize" in names,
        prompts,
    )


def dense_file(folder: str | Path) -> Path:
    """The weights of the linear layer of an embedder that has one."""
    path = next(path for name, path in _modules(Path(folder) / MODULES) if name == "Dense")
    return Path(folder) / path / "model.safetensors"


def write(folder: Path, vectors: Vectors, hidden: int, encoder_arguments: Mapping[str, Any]) -> None:
    """Write all files of sentence-transformers but weights and tokenizer.

    Args:
        hidden: width of the encoder's hidden states.
        encoder_arguments: arguments of the encoder's class, such as that it has no pooler.
    """
    modules: list[tuple[str, str, dict[str, Any] | None]] = [("", "Transformer", None)]
    modes = {key: name == vectors.pooling for name, key in POOLING.items()} | {
        "pooling_mode_mean_sqrt_len_tokens": False
    }
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
    write_json(folder / LENGTHS, {"do_lower_case": False, "model_args": dict(encoder_arguments)})
    prompts = {"prompts": dict(vectors.prompts), "default_prompt_name": None}
    write_json(folder / MODEL, prompts | {"similarity_fn_name": "cosine"})


def stored(folder: Path) -> list[Path]:
    """The files and folders of an embedder besides weights, config and tokenizer of its encoder."""
    paths = [path for _, path in _modules(folder / MODULES) if path and (folder / path).is_dir()]
    return [folder / name for name in (MODULES, LENGTHS, MODEL, *paths)]


def limit_length(folder: Path, longest: int) -> None:
    """State the maximum number of tokens of a text in the files of an embedder."""
    write_json(folder / LENGTHS, {"max_seq_length": longest} | read_json(folder / LENGTHS))


def _modules(file: Path) -> list[tuple[str, str]]:
    """(name of the class, folder) of each module."""
    return [(str(module["type"]).rpartition(".")[2], str(module["path"])) for module in read_json(file)]
