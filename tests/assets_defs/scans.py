"""A run as the code below Dagster sees it."""

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assets_defs.evidence import day_tables
from assets_defs.record import RunRecord
from assets_defs.run import ScanRun, default_options
from ownership.declaration import empty
from ownership.tables import LogonCounts
from ownership.windows import Window
from resources.search.source import DayOfLogons, extraction_fingerprint
from resources.settings import Instance
from resources.store.history import store_decisions
from resources.store.tables import Tables
from tests.ownership.builders import NOW, PEOPLE, RUN, WINDOW, counts, resolution

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
        "plans": True,
        "days_named": (window.last,),
        **opened,
        **changed,
    }
    record = RunRecord(tables, run_id, None, LOG)
    return ScanRun(
        instance=instance, tables=tables, run_id=run_id, record=record, log=LOG, window=window, **parts
    )


def decided(home: Path, instance: Instance, inventory: Any, **changed: Any) -> ScanRun:
    """A run that has listed and decided, and whose sink is to begin; ann has used pc-1.

    `fetched_at` is of its only day; what else is given, of its record.
    """
    tables = Tables(home, instance.slug)
    tables.prepare()
    window = Window(WINDOW.last, WINDOW.last)
    run = scan(tables, instance, window, RUN, inventory=inventory)
    fetched_at = changed.pop("fetched_at", datetime.now(UTC))
    day = DayOfLogons(window.last, fetched_at, 0, 0, 0, counts=empty(LogonCounts))
    tables.write_days([day_tables(day, extraction_fingerprint(instance))])
    known: dict[str, Any] = {"window": window, "checked_at": NOW} | changed
    run.record.begin("run", **known)
    assets = inventory.hosts()
    made = resolution(counts(("pc-1", "ann", 6)), PEOPLE, assets)
    snapshots = {
        "inventory_hosts": assets,
        "inventory_users": PEOPLE,
        "host_user_shares": made.shares,
        "username_matches": made.matches,
    }
    for name, frame in snapshots.items():
        tables.write(name, frame, run_id=RUN, publish=True)
    store_decisions(tables, made.decisions, decided_at=NOW, run_id=RUN, publish=True)
    return run
