"""Ways of shipping logon events: the fields and the query of each, from presets.yaml beside this."""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Preset:
    """One way of shipping: what its query counts and omits, and the keys of the instance file to set."""

    title: str
    counts: str
    omits: str
    notes: str
    settings: dict[str, str]
    rules: dict[str, Any] = field(default_factory=dict)


@cache
def presets() -> dict[str, Preset]:
    """Return all presets by name, in the order of the file."""
    text = Path(__file__).with_name("presets.yaml").read_text(encoding="utf-8")
    return {name: Preset(**content) for name, content in yaml.safe_load(text).items()}
