"""Resolution: from the stored counts and assets to owner_decisions, against one SQL statement."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from bench.evidence import RUN, SLUG, WINDOW, prepare
from bench.results import Experiment, Figure, memory, ratio, seconds
from bench.timing import Contender, alternate, function
from ownership.decisions import owner_decisions
from ownership.matching import username_matches
from ownership.rules import Rules
from ownership.shares import host_user_shares
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
    parts: dict[str, float] = {}

    def done(part: str, since: float) -> float:
        now = time.perf_counter()
        parts[part] = now - since
        return now

    def resolve() -> dict[str, Any]:
        at = time.perf_counter()
        shares = _shares(tables)
        at = done("shares made", at)
        tables.write("host_user_shares", shares, run_id=RUN, publish=True)
        del shares
        at = done("shares validated and stored", at)
        usernames = tables.read("host_user_shares", run_id=RUN).select("username").collect()
        users = tables.read("inventory_users", run_id=RUN).collect()
        at = done("user names and assets read", at)
        matches = username_matches(usernames, users, user_value_field="user_email")
        at = done("matches made", at)
        tables.write("username_matches", matches, run_id=RUN, publish=True)
        del usernames, users, matches
        at = done("matches validated and stored", at)
        shares = tables.read("host_user_shares", run_id=RUN)
        matches = tables.read("username_matches", run_id=RUN).collect()
        hosts = tables.read("inventory_hosts", run_id=RUN).collect()
        at = done("matches and hosts read", at)
        decisions = owner_decisions(
            shares,
            matches,
            hosts,
            tables.logon_counts(WINDOW, run_id=RUN),
            rules=Rules(exclude_users=EXCLUDED),
            window=WINDOW,
            decided_at=DECIDED_AT,
            run_id=RUN,
        )
        at = done("decisions made", at)
        tables.write("owner_decisions", decisions, run_id=RUN, publish=True)
        done("decisions validated and stored", at)
        return {"decisions": decisions.height, "parts": parts}

    return resolve


def product_shares(home: str) -> Callable[[], dict[str, Any]]:
    """What the asset host_user_shares does."""
    tables = Tables(Path(home), SLUG)

    def resolve() -> dict[str, Any]:
        shares = _shares(tables)
        tables.write("host_user_shares", shares, run_id=RUN, publish=True)
        return {"shares": shares.height}

    return resolve


def _shares(tables: Tables) -> pl.DataFrame:
    counts = tables.logon_counts(WINDOW, run_id=RUN)
    return host_user_shares(counts, rules=Rules(exclude_users=EXCLUDED))


def duckdb_statement(home: str, file: str, counted: str) -> Callable[[], dict[str, Any]]:
    """The same rules in a file of SQL, which stores one table, unchecked."""
    folder = Tables(Path(home), SLUG).folder
    statement = Path(__file__).with_name(file).read_text(encoding="utf-8")
    for name, value in {
        "$home": folder,
        "$first": WINDOW.first,
        "$last": WINDOW.last,
        "$decided_at": DECIDED_AT.isoformat(),
    }.items():
        statement = statement.replace(name, str(value))
    connection = duckdb.connect()
    connection.execute(MACROS)

    def resolve() -> dict[str, Any]:
        connection.execute(statement)
        return {counted: connection.fetchall()[0][0]}

    return resolve


def measure(home: Path, size: Size, repetitions: int) -> Experiment:
    """Resolve in all ways."""
    folder = home / f"evidence-{size.rows}"
    prepare(folder, rows=size.rows, hosts=size.hosts, users=size.users)

    def contender(name: str, of: str, **arguments: Any) -> Contender:
        return function(name, f"{__name__}:{of}", home=str(folder), **arguments)

    decided = [
        contender("owner_decisions, validated and stored", "product"),
        contender("one DuckDB statement", "duckdb_statement", file="resolution.sql", counted="decisions"),
    ]
    shared = [
        contender("host_user_shares, validated and stored", "product_shares"),
        contender(
            "the same table by one DuckDB statement", "duckdb_statement", file="shares.sql", counted="shares"
        ),
    ]
    timings = alternate(decided, repetitions, same="decisions")
    of_shares = alternate(shared, repetitions, same="shares")
    if unequal := differences(folder):
        raise ValueError(f"The contenders decide differently: {unequal}")
    ours, statement = timings
    name = f"{size.rows:,} rows"
    figures = [
        ratio(3, f"{name}: over one DuckDB statement", ours, statement, "≤", 1),
        Figure(3, f"{name}: the same, processor time", ours.cpu / statement.cpu, None, "times"),
        ratio(
            3, f"{name}: host_user_shares over a DuckDB statement that makes this table", *of_shares, "≤", 1
        ),
    ]
    if size.most_seconds:
        figures.append(seconds(3, f"{name}: from Parquet to stored decisions", ours, size.most_seconds))
    if size.most_gb:
        figures.append(memory(3, f"{name}: peak memory", ours, size.most_gb))
    return Experiment(
        f"Resolution: {name}, {size.hosts:,} hosts, {size.users:,} users",
        [*timings, *of_shares],
        figures,
        [
            ours.where,
            "The first statement stores decisions alone: not validated, without the tables in between.",
        ],
    )


def measure_slope(home: Path, rows: list[int], repetitions: int) -> Experiment:
    """Resolve ever more rows, a fortieth as many hosts and a fiftieth as many users."""
    timings = []
    for number in rows:
        folder = home / f"evidence-{number}"
        prepare(folder, rows=number, hosts=number // 40, users=number // 50)
        contender = function(f"{number:,} rows", f"{__name__}:product", home=str(folder))
        timings += alternate([contender], repetitions)

    def growth(less: int, more: int) -> float:
        """What twice the rows cost, between two of the sizes."""
        took = [timings[number].minimum for number in (less, more)]
        return (took[1] / took[0]) ** (1 / math.log2(rows[more] / rows[less]))

    mean = growth(0, len(rows) - 1)
    steepest = max(growth(number, number + 1) for number in range(len(rows) - 1))
    return Experiment(
        f"Resolution: {rows[0]:,} to {rows[-1]:,} rows",
        timings,
        [
            Figure(3, f"twice the rows, from {rows[0]:,} to {rows[-1]:,}", mean, None, "times", "≤", 2.2),
            Figure(3, "twice the rows, the steepest step", steepest, None, "times", "≤", 2.2),
            memory(3, f"{rows[-1]:,} rows: peak memory", timings[-1], 8),
        ],
        [timing.where for timing in timings[-2:]],
    )


def differences(home: Path) -> list[str]:
    """Names of columns in which the contenders' tables differ; they must not."""
    folder = home / "tables" / SLUG
    pairs = (("owner_decisions", "decisions_of_duckdb"), ("host_user_shares", "shares_of_duckdb"))
    return [
        column
        for names in pairs
        for ours, other in [[pl.read_parquet(folder / f"{name}.parquet") for name in names]]
        for column in other.columns
        if not other[column].cast(ours[column].dtype).equals(ours[column], null_equal=True)
    ]
