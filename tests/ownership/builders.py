"""Small tables for tests: name what matters, the rest is filled in."""

from collections.abc import Collection
from datetime import UTC, date, datetime, timedelta
from typing import Any

import polars as pl

from ownership.declaration import Table, empty, polars_schema, validated
from ownership.matching import FieldNames, Present
from ownership.plan import plan_writes
from ownership.rules import Rules
from ownership.tables import TABLES, HostUserShares, InventoryHosts, InventoryUsers, LogonCounts, OwnerWrites
from ownership.windows import Window
from sandbox.stored_run import ResolvedRun, inventory_reader

DAY = date(2026, 3, 2)
WINDOW = Window(date(2026, 3, 1), date(2026, 3, 30))
NOW = datetime(2026, 3, 30, 12, 0, tzinfo=UTC)
BEGUN = NOW - timedelta(minutes=1)
"""When the run began that lists, decides and plans; a plan is as old as that."""
RUN = "run-1"
PRESENT = Present(Rules(), FieldNames(), "asset-owners undo", "asset-owners conflicts", 400, NOW)


def table(model: type[Table], *rows: dict[str, Any]) -> pl.DataFrame:
    """Rows of a table, not validated: with each of its inputs a test would take twice as long.

    Nor may Polars start its threads while a module is imported: processes that are forked then would hang.
    """
    return pl.DataFrame(rows, schema=polars_schema(model))


def counts(
    *rows: tuple[str | None, str | None, int]
    | tuple[str | None, str | None, int, date]
    | tuple[str | None, str | None, int, date, str | None],
) -> pl.LazyFrame:
    """Rows of logon_counts: `counts(("pc", "ann", 6), ("pc", "bob", 4, DAY), ("pc", "bob", 1, DAY, "2"))`."""
    names = ("document_hostname", "document_username", "events", "day", "document_logon_type")
    return table(
        LogonCounts, *({"day": DAY, "log": "logs"} | dict(zip(names, row, strict=False)) for row in rows)
    ).lazy()


def logon_day(day: date, events: int, **values: Any) -> dict[str, Any]:
    """A row of logon_days: so many events, all of which have both names and were counted."""
    filled = {"matching": events, "counted": events, "lacking_user": 0, "lacking_host": 0}
    return filled | {"day": day, "fetched_at": NOW, "settings_fingerprint": "x", "log": "logs"} | values


def hosts(*rows: dict[str, Any]) -> pl.DataFrame:
    filled = {"hostnames": [], "owner_ids": [], "listed_at": NOW}
    return table(InventoryHosts, *(filled | row for row in rows))


def host(host_id: str, *hostnames: str, owners: tuple[str, ...] = (), **values: Any) -> dict[str, Any]:
    return {"host_id": host_id, "hostnames": list(hostnames), "owner_ids": list(owners)} | values


def users(*rows: dict[str, Any]) -> pl.DataFrame:
    lists = [name for name, dtype in polars_schema(InventoryUsers).items() if dtype == pl.List]
    filled: dict[str, Any] = {name: [] for name in lists} | {"listed_at": NOW}
    return table(InventoryUsers, *(filled | row for row in rows))


def user(
    user_id: str, email: str | None = None, sam: str | None = None, surname: str | None = None, **values: Any
) -> dict[str, Any]:
    """A user asset; its e-mail address is also the instance's user value."""
    fields = {
        "user_value": email,
        "user_email": email,
        "directory_user_sam_account_name": sam,
        "directory_user_surname": surname,
    }
    return {"user_id": user_id} | {name: [value] for name, value in fields.items() if value} | values


TARGET = "https://inventory.example tenant t-1 0123456789abcdef"
PEOPLE = users(
    user("u1", email="ann@corp.example", user_department="Sales"),
    user("u2", email="bob@corp.example"),
    user("u3", surname="kim"),
    user("u4", surname="kim"),
)


def resolution(
    logons: pl.LazyFrame,
    people: pl.DataFrame,
    assets: pl.DataFrame,
    rules: Rules | None = None,
    **changed: Any,
) -> ResolvedRun:
    """The whole way from counts to decisions, not validated: that takes a third of the time."""
    run: dict[str, Any] = {"window": WINDOW, "decided_at": NOW, "run_id": RUN, "user_value_field": None}
    return ResolvedRun(
        counts=logons,
        read_inventory=inventory_reader(assets, people),
        rules=rules or Rules(),
        **run | changed,
    )


def shares_of(logons: pl.LazyFrame, rules: Rules) -> pl.DataFrame:
    return validated(HostUserShares, resolution(logons, PEOPLE, hosts(), rules).shares)


def decide(
    logons: pl.LazyFrame, people: pl.DataFrame, assets: pl.DataFrame, rules: Rules | None = None
) -> pl.DataFrame:
    return resolution(logons, people, assets, rules).decisions


def plan(
    decisions: pl.DataFrame,
    people: pl.DataFrame,
    assets: pl.DataFrame,
    *,
    enrich: bool = True,
    takes: Collection[str] = ("owner", "department", "criticality"),
) -> pl.DataFrame:
    writes = plan_writes(
        decisions, assets, people, enrich=enrich, takes=takes, run_id=RUN, target=TARGET, intended_at=BEGUN
    )
    return validated(OwnerWrites, writes)


def reading(**tables):
    """A function that reads these stored tables, and others without rows."""
    return lambda name: tables.get(name, empty(TABLES[name])).lazy()
