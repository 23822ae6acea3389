"""A run as the code below Dagster sees it."""

import logging
import shutil
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest

from assets_defs.evidence import day_tables
from assets_defs.record import RunRecord
from assets_defs.run import ScanRun, default_options
from assets_defs.run_request import Mode
from ownership.windows import Window
from resources.search.source import DayOfLogons, Logs, extraction_fingerprint
from resources.settings import Instance
from resources.store.retention import store_decisions
from resources.store.tables import Tables
from tests.ownership.builders import NOW, PEOPLE, RUN, WINDOW, counts, resolution

LOG = logging.getLogger("tests")
ONE_DAY = Window(WINDOW.last, WINDOW.last)


def scan(tables: Tables, instance: Instance, window: Window, run_id: str = "now", **changed: Any) -> ScanRun:
    """A run of all steps that may write; `search` and `inventory` are the services, if it may ask them."""
    services = {name: changed.pop(name, None) for name in ("search", "inventory")}
    if services["search"]:
        services["search"] = Logs(instance, lambda _, source=services["search"]: source)
    opened = {
        name: (lambda service=service: service) if service else pytest.fail
        for name, service in services.items()
    }
    parts: dict[str, Any] = {
        "options": default_options(instance),
        "mode": Mode("run", None, (), plans=True),
        "why_no_writes": None,
        "days_named": (window.last,),
        **opened,
        **changed,
    }
    return ScanRun(
        instance=instance,
        tables=tables,
        run_id=run_id,
        record=RunRecord(tables, run_id, None, LOG),
        log=LOG,
        window=window,
        **parts,
    )


HOMES: dict[str, TemporaryDirectory] = {}
"""Homes as `decided` leaves them, to copy: to make one takes longer than most tests."""


def decided(home: Path, instance: Instance, inventory: Any, **changed: Any) -> ScanRun:
    """A run that has listed and decided, and whose sink is to begin; ann has used pc-1.

    `fetched_at` is of its only day; what else is given, of its record. In a home that has such a run already
    it is the same one, which is started again.
    """
    assets = inventory.hosts()
    made_by = instance.slug, extraction_fingerprint(instance), instance.rules
    like = repr((made_by, assets.drop("listed_at").rows(), changed))
    if like not in HOMES:
        HOMES[like] = TemporaryDirectory()
        _decide(Path(HOMES[like].name), instance, assets, **changed)
    if not (home / "tables").exists():
        shutil.copytree(HOMES[like].name, home, dirs_exist_ok=True)
    return scan(Tables(home, instance.slug), instance, ONE_DAY, RUN, inventory=inventory)


def _decide(home: Path, instance: Instance, assets: pl.DataFrame, **changed: Any) -> None:
    tables = Tables(home, instance.slug)
    tables.prepare()
    fetched_at = changed.pop("fetched_at", datetime.now(UTC))
    counted = counts(("pc-1", "ann", 6, ONE_DAY.last))
    day = DayOfLogons(ONE_DAY.last, fetched_at, 6, 0, 0, counts=counted.collect())
    tables.write_days([day_tables(day, instance.index, extraction_fingerprint(instance))])
    known: dict[str, Any] = {"window": ONE_DAY, "checked_at": NOW} | changed
    RunRecord(tables, RUN, None, LOG).begin("run", rules=instance.rules.as_rules(), **known)
    made = resolution(counted, PEOPLE, assets)
    snapshots = {
        "inventory_hosts": assets,
        "inventory_users": PEOPLE,
        "host_user_shares": made.shares,
        "username_matches": made.matches,
    }
    for name, frame in snapshots.items():
        tables.write(name, frame, run_id=RUN, publish=True)
    store_decisions(tables, made.decisions, decided_at=NOW, run_id=RUN, publish=True)
