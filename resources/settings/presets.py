"""Ways of shipping logon events, from presets.yaml in this folder: fields and query of each."""

import textwrap
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Preset:
    """One way of shipping: what its query counts and omits, and the settings for the instance file."""

    title: str
    counts: str
    omits: str
    notes: str
    settings: dict[str, str]
    rules: dict[str, Any] = field(default_factory=dict)

    def comment(self) -> str:
        """Return the description as comments for an instance file."""
        counted = f"Counted: {self.counts}", f"Not counted: {self.omits}"
        lines = [f"{self.title}.", *counted, *self.notes.splitlines()]
        return "\n".join(
            f"# {line}".rstrip()
            if line[:1] in {"", " "}
            else textwrap.indent(textwrap.fill(line, 108, break_on_hyphens=False), "# ")
            for line in lines
        )


@cache
def presets() -> dict[str, Preset]:
    """Return all presets by name, in the order of the file."""
    text = Path(__file__).with_name("presets.yaml").read_text(encoding="utf-8")
    return {name: Preset(**content) for name, content in yaml.safe_load(text).items()}
