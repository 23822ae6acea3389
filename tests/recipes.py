"""The recipes of docs/architecture.md, carried out as they stand there."""

import re
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"


@cache
def recipe(name: str) -> Any:
    """The class of this name, from the page."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (code,) = (dedent(block) for block in blocks if f"class {name}(" in block)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102  (ours)
    return names[name]
