"""Files of settings and code belong together: every loss has a term, every kind of stage a schema, and all compose."""

from __future__ import annotations

import ast
import functools
import inspect
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from distill import config, losses
from distill.config import Stage, Term
from distill.config.feature_kinds import FEATURE_KINDS, REPLACED
from distill.config.instantiate import PLACES, bind
from distill.pipeline import validation
from distill.pipeline.stages import STAGES as KINDS

CONF = config.folder("conf")
TERMS = sorted(p.stem for p in (CONF / "term").glob("*.yaml"))
OPTIONS = sorted((p.parent.name, p.stem) for p in CONF.glob("*/*.yaml"))

STAGES = KINDS.keys() | {"baseline"}
"""Kinds of stages. A baseline is run as the train stage that `expand.trained` makes of it."""

WHERE = {
    "optimizer": "optimizer@stages.pretrain.optimizer",
    "schedule": "schedule@stages.pretrain.schedule",
    "term": "+term@stages.pretrain.terms.more_NAME",
    "stage": "+stage@stages.more_NAME",
    "importance": "importance@stages.prune.importance",
}
"""Group -> where in a recipe an option of it is put; the others are put where their name says."""


FEATURES = {name: yaml.safe_load((CONF / "term" / f"{name}.yaml").read_text())["features"] for name in TERMS}
STAGE = {name: "pretrain" if FEATURE_KINDS[features].rows else "finetune" for name, features in FEATURES.items()}
"""Term -> stage that it is added to: a few are of tasks alone."""
EVERY_TERM = tuple(f"+term@stages.{STAGE[name]}.terms.more_{name}={name}" for name in TERMS)
"""All terms, added to one recipe: composing takes long, and once is enough."""
OF_OTHER_HEADS = [name for name in TERMS if FEATURES[name] == REPLACED.name]
"""Terms that need another head on the corpus than those on logits. recipe=electra_small has them."""
EVERY_STAGE = tuple(f"+stage@stages.more_{name}={name}" for group, name in OPTIONS if group == "stage")
CHOICES = {
    group: [name for other, name in OPTIONS if other == group]
    for group, _ in OPTIONS
    if group not in ("term", "stage", "importance")
}
"""Groups of which a recipe has one option each: the first of all are composed together, then the second, and so on."""


config.register()


@functools.cache
def composed(*overrides: str) -> Any:
    with initialize_config_dir(str(CONF.resolve()), version_base="1.3"):
        recipe = "prune" if any("stages.prune" in entry for entry in overrides) else "distilbert"
        return compose("config", overrides=[f"recipe={recipe}", *overrides])


def put(group: str, option: str) -> Any:
    """The part of a recipe that an option of a group becomes."""
    if group == "term":
        return composed(*EVERY_TERM).stages[STAGE[option]].terms[f"more_{option}"]
    if group == "stage":
        return composed(*EVERY_STAGE).stages[f"more_{option}"]
    number, together = CHOICES.get(group, [option]).index(option), CHOICES if group in CHOICES else {group: [option]}
    chosen = {WHERE.get(name, name): options[min(number, len(options) - 1)] for name, options in together.items()}
    whole = composed(*(f"{where}={name}" for where, name in chosen.items()))
    return OmegaConf.select(whole, WHERE.get(group, group).rpartition("@")[2])


def test_every_loss_and_every_kind_has_a_term_and_every_term_a_loss() -> None:
    files = {name: yaml.safe_load((CONF / "term" / f"{name}.yaml").read_text()) for name in TERMS}
    assert {term["features"] for term in files.values()} == FEATURE_KINDS.keys()
    assert {term["loss"]["_target_"] for term in files.values()} == {f"distill.losses.{n}" for n in losses.__all__}


@pytest.mark.parametrize("group", ["importance", "optimizer", "schedule"])
def test_every_option_is_a_function_that_belongs_there(group: str) -> None:
    files = (yaml.safe_load(file.read_text()) for file in (CONF / group).glob("*.yaml"))
    options = {node["_target_"] for node in files}
    assert options <= {*PLACES[group]}
    assert group == "optimizer" or options == {*PLACES[group]}


@pytest.mark.parametrize("name", TERMS)
def test_a_term_says_what_it_is_and_everything_it_sets(name: str) -> None:
    text = (CONF / "term" / f"{name}.yaml").read_text()
    assert text.startswith("# ")
    assert {"weight", "features", "compare_with", "loss"} <= yaml.safe_load(text).keys()


@pytest.mark.quick(7)
@pytest.mark.parametrize("name", TERMS)
def test_a_terms_parameters_are_those_of_its_loss(name: str) -> None:
    term = put("term", name)
    assert OmegaConf.get_type(term) is Term
    loss: Any = bind(OmegaConf.to_object(term.loss), "loss")  # type: ignore[arg-type]
    assert loss.func in [getattr(losses, n) for n in losses.__all__]
    inspect.signature(loss.func).bind("student", "other", **loss.keywords)
    taken = inspect.signature(loss.func).parameters.values()
    assert {p.name for p in taken if p.kind is p.KEYWORD_ONLY} == loss.keywords.keys()


def test_every_term_fits_into_a_recipe() -> None:
    settings: Any = OmegaConf.to_object(composed(*EVERY_TERM))
    assert sum(len(settings.stages[name].terms) for name in ("pretrain", "finetune")) == 7 + len(TERMS)
    terms = settings.stages["pretrain"].terms
    for name in OF_OTHER_HEADS:
        del terms[f"more_{name}"]
    assert OF_OTHER_HEADS == [*config.load_config(["recipe=electra_small"]).stages["pretrain"].terms][-2:]  # type: ignore[attr-defined]
    of_pairs = [f"more_{name}" for name in TERMS if FEATURE_KINDS[FEATURES[name]].segments]
    for one in of_pairs:  # a text becomes pairs for one of them
        for name in of_pairs:
            terms[name].weight = float(name == one)
        settings.stages["pretrain_baseline"].terms["pairs"] = terms[one]
        assert validation.settings(settings, "distilbert") == []


@pytest.mark.parametrize(
    ("term", "name", "value", "must"),
    [
        *(("skewed_kl", "skew", value, "between 0 and 1") for value in (0, 1)),
        ("jensen_shannon", "share", 1.5, "between 0 and 1"),
        *(("decoupled_kl", name, -1, ">= 0") for name in ("target", "others")),
    ],
)
def test_a_value_that_a_divergence_cannot_have_is_refused(term: str, name: str, value: float, must: str) -> None:
    key = "stages.recover.terms.soft_targets"
    settings = config.load_config(["recipe=prune", f"term@{key}={term}", f"{key}.loss.{name}={value}"])
    assert validation.settings(settings, "prune") == [f"{key}.loss.{name}: got {value}; must be {must}; see conf/term"]


def test_a_term_takes_the_temperature_of_its_stage() -> None:
    settings = config.load_config(["recipe=distilbert", "temperature=3", "stages.finetune.temperature=5"])
    found = {name: settings.stages[name].terms["soft_targets"].loss["temperature"] for name in ("pretrain", "finetune")}  # type: ignore[attr-defined]
    assert found == {"pretrain": 3.0, "finetune": 5.0}


def test_groups_are_those_of_the_table_of_contents() -> None:
    contents = yaml.safe_load((CONF / "config.yaml").read_text())["defaults"]
    chosen = {name: option for entry in contents if isinstance(entry, dict) for name, option in entry.items()}
    groups = {group for group, _ in OPTIONS}
    assert groups == {name for name in chosen if "/" not in name and name != "recipe"} | WHERE.keys()
    assert all((group, chosen[group]) in OPTIONS for group in groups - WHERE.keys())


@pytest.mark.quick(18)
@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_composes_and_is_what_it_is_called(group: str, option: str) -> None:
    node = put(group, option)
    schema = {f.name for f in OmegaConf.get_type(node).__dataclass_fields__.values()} if group not in WHERE else set()
    file = yaml.safe_load((CONF / group / f"{option}.yaml").read_text())
    assert file.keys() - {"defaults"} <= node.keys()
    assert not schema or file.keys() <= schema
    if group == "stage":  # an option with more than a schema is of the kind that it starts from
        assert node.kind in STAGES
    elif "kind" in node and group != "tasks":  # an option with a name on the hub is of kind hub
        assert node.kind == ("hub" if node.get("name") else option)
    if "_target_" in node:
        assert node._partial_
        assert callable(bind(OmegaConf.to_object(node), group))  # type: ignore[arg-type]


@functools.cache
def stages_of(recipe: str) -> set[tuple[str, type]]:
    """Kind and schema of every stage of a recipe."""
    return {(stage.kind, type(stage)) for stage in config.load_config([f"recipe={recipe}"]).stages.values()}


@pytest.mark.parametrize("kind", sorted(STAGES))
def test_every_kind_of_stage_has_a_schema_a_file_and_a_recipe(kind: str) -> None:
    schemas = {name.removesuffix("_schema.yaml") for name in ConfigStore.instance().list("stage")}
    files = {p.stem for p in (CONF / "stage").glob("*.yaml")}
    assert schemas == STAGES <= files
    node = ConfigStore.instance().load(f"stage/{kind}_schema.yaml").node
    schema = OmegaConf.get_type(node)
    assert issubclass(schema, Stage)
    assert node.kind == kind
    likely = sorted(config.recipes(), key=lambda name: name not in ("distilbert", "prune", "vocabulary"))
    assert any((kind, schema) in stages_of(recipe) for recipe in likely)
    if kind in KINDS:
        assert len(inspect.signature(KINDS[kind].run).parameters) == len(("inputs", "settings", "runtime"))


def test_every_preset_of_a_stage_says_what_it_is_and_is_used() -> None:
    presets = list((CONF / "stage").glob("*.yaml"))
    assert all(file.read_text().startswith("# ") for file in presets)
    lists = [yaml.safe_load(file.read_text())["defaults"] for file in [*presets, *config.recipes().values()]]
    entries = [entry for defaults in lists for entry in defaults]
    used = {name for entry in entries for name in (entry.values() if isinstance(entry, dict) else [entry])}
    assert {file.stem for file in presets} <= used


def test_every_field_is_described_below_it() -> None:
    """Fields that are groups of settings, and those that a kind of stage fixes, need no words of their own."""
    folder = Path(config.__file__).parent
    sources = [folder / f"{name}.py" for name in ("__init__", "data", "models", "stages")]
    classes = [n for file in sources for n in ast.parse(file.read_text()).body if isinstance(n, ast.ClassDef)]
    groups = {node.name for node in classes}
    silent = []
    for node in classes:
        for field, below in pairwise([*node.body, ast.Pass()]):
            told = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if isinstance(field, ast.AnnAssign) and not told and ast.unparse(field.annotation) not in groups:
                silent.append(f"{node.name}.{ast.unparse(field.target)}")
    assert silent == [
        f"{schema}.kind" for schema in ("Train", "Baseline", "Prune", "Vocabulary", "Quantize", "Evaluate", "Export")
    ]
