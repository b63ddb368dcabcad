"""What Hydra refuses is explained in lines that name what was typed."""

from __future__ import annotations

from pathlib import Path

import pytest

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
