"""The recipes that docs/architecture.md names, used as they are."""

import runpy
from pathlib import Path
from typing import Any

RECIPES = Path(__file__).parents[1] / "docs" / "recipes"


def recipe(name: str) -> Any:
    """Returns the class of this name from the file that is called like it."""
    return runpy.run_path(str(RECIPES / f"{name.lower()}.py"))[name]
