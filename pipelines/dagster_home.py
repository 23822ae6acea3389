"""Dagster's own home under ASSET_OWNERS_HOME: runs, event log, schedules."""

import os
from pathlib import Path

import dagster as dg

# No telemetry, and no sign-up dialog over the first page.
DAGSTER_YAML = """\
telemetry:
  enabled: false
nux:
  enabled: false
"""


def dagster_home(home: Path) -> Path:
    """Return Dagster's home, created with our settings when it does not exist; DAGSTER_HOME wins."""
    folder = Path(os.environ.get("DAGSTER_HOME") or home / "dagster").absolute()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    settings = folder / "dagster.yaml"
    if not settings.exists():
        settings.write_text(DAGSTER_YAML, encoding="utf-8")
    return folder


def dagster_instance(home: Path) -> dg.DagsterInstance:
    """Open the Dagster instance that the UI under the same home shows."""
    return dg.DagsterInstance.from_config(str(dagster_home(home)))
