"""Resolution: from stored counts and assets to owner_decisions; the shares against one SQL statement."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from bench.evidence import RUN, SLUG, WINDOW, prepare
from bench.results import Experiment, memory, ratio, seconds
from bench.timing import Contender, alternate, function
from ownership.resolution import Resolution
from ownership.rules import Rules
from ownership.windows import Window, days_of
from resources.store.tables import Tables

EXCLUDED = ("svc_*", "*$")
STABLE_DAYS = 14
STORED = Window(WINDOW.first - timedelta(days=STABLE_DAYS - 1), WINDOW.last)
"""The window, and the days before it that `min_stable_days` looks at."""
DECIDED_AT = datetime(2026, 1, 31, tzinfo=UTC)

MACROS = r"""
CREATE TEMP MACRO fold(name) AS nullif(nullif(trim(nfc_normalize(lower(name))), ''), '-');
CREATE TEMP MACRO fold_user(name) AS fold(split_part(split_part(name, '\', -1), '@', 1));
CREATE TEMP MACRO excluded(name) AS name GLOB 'svc_*' OR name GLOB '*$';
"""


@dataclass(frozen=True)
class Size:
    """How much is resolved, and what is asked for in seconds and GB, if anything."""

    rows: int
    hosts: int
    users: int
    most_seconds: float | None = None
    most_gb: float | None = None


def product(home: str, stable_days: int | None = None) -> Callable[[], dict[str, Any]]:
    """What the assets host_user_shares, username_matches and owner_decisions do, one after the other."""
    tables = Tables(Path(home), SLUG)

    def resolve() -> dict[str, Any]:
        resolution = _resolution(tables, stable_days)
        tables.write("host_user_shares", resolution.count_shares(), run_id=RUN, publish=True)
        usernames = tables.read("host_user_shares", run_id=RUN).select("username").collect()
        matches = resolution.match_usernames(usernames)
        tables.write("username_matches", matches, run_id=RUN, publish=True)
        del usernames, matches
        matches = tables.read("username_matches", run_id=RUN).collect()
        decisions = resolution.decide(matches, decided_at=DECIDED_AT, run_id=RUN)
        tables.write("owner_decisions", decisions, run_id=RUN, publish=True)
        return {"decisions": decisions.height}

    return resolve


def product_shares(home: str) -> Callable[[], dict[str, Any]]:
    """What the asset host_user_shares does."""
    tables = Tables(Path(home), SLUG)

    def resolve() -> dict[str, Any]:
        shares = _resolution(tables).count_shares()
        tables.write("host_user_shares", shares, run_id=RUN, publish=True)
        return {"shares": shares.height}

    return resolve


def _resolution(tables: Tables, stable_days: int | None = None) -> Resolution:
    return Resolution(
        counts=tables.logon_counts(WINDOW, run_id=RUN),
        earlier=tables.logon_counts([day for day in days_of(STORED) if day < WINDOW.first], run_id=RUN),
        read_inventory=partial(tables.read, run_id=RUN),
        rules=Rules(exclude_users=EXCLUDED, min_stable_days=stable_days),
        user_value_field="user_email",
        window=WINDOW,
    )


def duckdb_shares(home: str) -> Callable[[], dict[str, Any]]:
    """The same table by one SQL statement, unchecked."""
    folder = Tables(Path(home), SLUG).folder
    statement = Path(__file__).with_name("shares.sql").read_text(encoding="utf-8")
    for name, value in {"$home": folder, "$first": WINDOW.first}.items():
        statement = statement.replace(name, str(value))
    connection = duckdb.connect()
    connection.execute(MACROS)

    def resolve() -> dict[str, Any]:
        connection.execute(statement)
        return {"shares": connection.fetchall()[0][0]}

    return resolve


def measure(home: Path, size: Size, repetitions: int) -> Experiment:
    """Resolve whole, and make the shares in both ways."""
    folder, rows = home / f"stable-{size.rows}", round(size.rows * STORED.days / WINDOW.days)
    prepare(folder, rows=rows, hosts=size.hosts, users=size.users, window=STORED)

    def contender(name: str, of: str, **asked: Any) -> Contender:
        return function(name, f"{__name__}:{of}", home=str(folder), **asked)

    whole = [
        contender("owner_decisions, validated and stored", "product"),
        contender(f"the same with min_stable_days: {STABLE_DAYS}", "product", stable_days=STABLE_DAYS),
    ]
    ours, stable = alternate(whole, repetitions, same="decisions")
    shared = [
        contender("host_user_shares, validated and stored", "product_shares"),
        contender("the same table by one DuckDB statement", "duckdb_shares"),
    ]
    of_shares = alternate(shared, repetitions, same="shares")
    if unequal := differences(folder):
        raise ValueError(f"The contenders differ: {unequal}")
    name = f"{size.rows:,} rows"
    figures = [
        ratio(3, f"{name}: with min_stable_days over without", stable, ours, "≤", 1.5),
        ratio(
            3, f"{name}: host_user_shares over a DuckDB statement that makes this table", *of_shares, "≤", 1
        ),
    ]
    if size.most_seconds:
        figures.append(seconds(3, f"{name}: from Parquet to stored decisions", ours, size.most_seconds))
    if size.most_gb:
        figures.append(memory(3, f"{name}: peak memory", ours, size.most_gb))
    title = f"Resolution: {name}, {size.hosts:,} hosts, {size.users:,} users"
    return Experiment(title, [ours, stable, *of_shares], figures)


def differences(home: Path) -> list[str]:
    """Names of columns in which the contenders' tables differ; they must not."""
    folder = home / "tables" / SLUG
    ours, other = (
        pl.read_parquet(folder / f"{name}.parquet") for name in ("host_user_shares", "shares_of_duckdb")
    )
    return [
        column
        for column in other.columns
        if not other[column].cast(ours[column].dtype).equals(ours[column], null_equal=True)
    ]
