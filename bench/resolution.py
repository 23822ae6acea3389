"""Resolution: from stored counts and assets to owner_decisions; the shares against one SQL statement."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
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
from resources.store.tables import Tables

EXCLUDED = ("svc_*", "*$")
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


def product(home: str) -> Callable[[], dict[str, Any]]:
    """What the assets host_user_shares, username_matches and owner_decisions do, one after the other."""
    tables = Tables(Path(home), SLUG)

    def resolve() -> dict[str, Any]:
        tables.write("host_user_shares", _resolution(tables).count_shares(), run_id=RUN, publish=True)
        usernames = tables.read("host_user_shares", run_id=RUN).select("username").collect()
        matches = _resolution(tables).match_usernames(usernames)
        tables.write("username_matches", matches, run_id=RUN, publish=True)
        del usernames, matches
        matches = tables.read("username_matches", run_id=RUN).collect()
        decisions = _resolution(tables).decide(matches, decided_at=DECIDED_AT, run_id=RUN)
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


def _resolution(tables: Tables) -> Resolution:
    return Resolution(
        counts=tables.logon_counts(WINDOW, run_id=RUN),
        read_inventory=partial(tables.read, run_id=RUN),
        rules=Rules(exclude_users=EXCLUDED),
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
    folder = home / f"evidence-{size.rows}"
    prepare(folder, rows=size.rows, hosts=size.hosts, users=size.users)

    def contender(name: str, of: str) -> Contender:
        return function(name, f"{__name__}:{of}", home=str(folder))

    (ours,) = alternate([contender("owner_decisions, validated and stored", "product")], repetitions)
    shared = [
        contender("host_user_shares, validated and stored", "product_shares"),
        contender("the same table by one DuckDB statement", "duckdb_shares"),
    ]
    of_shares = alternate(shared, repetitions, same="shares")
    if unequal := differences(folder):
        raise ValueError(f"The contenders differ: {unequal}")
    name = f"{size.rows:,} rows"
    figures = [
        ratio(
            3, f"{name}: host_user_shares over a DuckDB statement that makes this table", *of_shares, "≤", 1
        ),
    ]
    if size.most_seconds:
        figures.append(seconds(3, f"{name}: from Parquet to stored decisions", ours, size.most_seconds))
    if size.most_gb:
        figures.append(memory(3, f"{name}: peak memory", ours, size.most_gb))
    title = f"Resolution: {name}, {size.hosts:,} hosts, {size.users:,} users"
    return Experiment(title, [ours, *of_shares], figures)


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
