"""What Hydra refuses is explained in lines that name what was typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from distill.cli import help_text
from distill.config import load_config
from distill.pipeline.validation.hydra_errors import messages
from distill.runtime import quoting

pytestmark = pytest.mark.usefixtures("real_compose")


@pytest.mark.parametrize("name", ["mine", "my configs", "größe", "100%", "it's"])
def test_the_folder_of_own_recipes_is_found_again_for_the_message(name: str, tmp_path: Path) -> None:
    """Hydra does not decode the name of a folder."""
    folder = tmp_path / name
    (folder / "recipe").mkdir(parents=True)
    (folder / "recipe" / "own.yaml").write_text("# @package _global_\ndefaults: [/recipe/distilbert, _self_]\n")
    words = ["recipe=own", "seed=x"]
    with pytest.raises(Exception, match=r"\S") as caught:
        load_config([f"hydra.searchpath={quoting.hydra([f'file://{folder}'])}", *words])
    assert messages(caught.value, ["--config-dir", str(folder), *words]) == [
        "seed: got x; must be a whole number; see docs/settings.md"
    ]


@pytest.mark.parametrize(("word", "number"), [("importance=taylor", 1), ("schedule=constant", 2)])
def test_a_choice_of_a_stage_is_advised_as_it_is_typed(word: str, number: int) -> None:
    words = ["recipe=prune", word]
    with pytest.raises(Exception, match=r"\S") as caught:
        load_config(words)
    (line,) = messages(caught.value, words) or []
    group, name = word.split("=")
    assert line.startswith(f"{group}: got {name}; must be chosen for a stage; set {group}@stages.")
    ways = line.rpartition("; set ")[2].split(" or ")
    assert len(ways) >= number
    for way in ways:
        stage = load_config(["recipe=prune", way]).stages[way.split(".")[1]]
        assert getattr(stage, group)["_target_"].endswith(f".{name}")


def test_help_names_the_choices_of_a_stage_as_they_are_typed() -> None:
    shown = {group: options for group, options in help_text.choices().items() if "@" in group}
    assert shown.keys() == {"importance@stages.STAGE.importance", "schedule@stages.STAGE.schedule"}
    for group, options in shown.items():
        stage = "prune" if group.startswith("importance") else "recover"
        load_config(["recipe=prune", f"{group.replace('STAGE', stage)}={options[0]}"])
