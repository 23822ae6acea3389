"""A run as the code below Dagster sees it."""

import logging
from typing import Any

import pytest

from assets_defs.record import RunRecord
from assets_defs.run import ScanRun, default_options
from ownership.windows import Window
from resources.settings import Instance
from resources.store.tables import Tables

LOG = logging.getLogger("tests")


def scan(tables: Tables, instance: Instance, window: Window, run_id: str = "now", **changed: Any) -> ScanRun:
    """A run of all steps that may write; `search` and `inventory` are the services, if it may ask them."""
    services = {name: changed.pop(name, None) for name in ("search", "inventory")}
    opened = {
        name: (lambda service=service: service) if service else pytest.fail
        for name, service in services.items()
    }
    parts: dict[str, Any] = {
        "options": default_options(instance),
        "kind": "run",
        "only_plans": None,
        "left_out": (),
        "own_days": None,
        "plans": True,
        "days_named": (window.last,),
        **opened,
        **changed,
    }
    record = RunRecord(tables, run_id, None, LOG)
    return ScanRun(instance=instance, tables=tables, run_id=run_id, record=record, window=window, **parts)
