"""Resolution: from stored counts and assets to owner_decisions; shares against one SQL statement; tuning."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from bench.evidence import RUN, SLUG, WINDOW, prepare
from bench.results import Experiment, Figure, memory, ratio, seconds
from bench.timing import Contender, Timing, alternate, function
from ownership.declaration import empty
from ownership.resolution import Resolution
from ownership.rules import Rules
from ownership.tables import AuditSample, OwnerDecisions
from ownership.tuning.accuracy import HOLDOUT_DAYS
from ownership.tuning.backtest import WINDOWS, usual_settings
from ownership.tuning.confidence import with_answers
from ownership.tuning.inputs import Inputs, tuning_tables
from ownership.windows import Window, days_of
from resources.store.tables import Tables

EXCLUDED = ("svc_*", "*$")
STABLE_DAYS = 14
STORED = Window(WINDOW.first - timedelta(days=STABLE_DAYS - 1), WINDOW.last)
"""The window, and the days before it that `min_stable_days` looks at."""
FOR_TUNING = Window(WINDOW.last - timedelta(days=max(WINDOWS) + HOLDOUT_DAYS - 1), WINDOW.last)
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

    def goals(self, goal: int, what: str, one: Timing, *others: Timing) -> list[Figure]:
        """How long `one` takes and how much memory each, where that is asked for."""
        limits = [seconds(goal, what, one, self.most_seconds)] if self.most_seconds else []
        if self.most_gb:
            rows = f"{self.rows:,} rows: peak memory of"
            limits += [memory(goal, f"{rows} {each.name}", each, self.most_gb) for each in (one, *others)]
        return limits


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
    figures += size.goals(3, f"{name}: from Parquet to stored decisions", ours)
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


# Tuning: from the stored counts of 67 days to the back-test, and to all its tables


def tune(home: str) -> Callable[[], dict[str, Any]]:
    """Make the tables of tuning, as the job does; they are not stored."""

    def made() -> dict[str, Any]:
        stored = _inputs(home)
        tables = tuning_tables(stored, stored.more_counts)
        return {"lines": tables["threshold_backtest"].height, "accounts": tables["account_profiles"].height}

    return made


def back_test(home: str) -> Callable[[], dict[str, Any]]:
    """Make `threshold_backtest` alone."""

    def made() -> dict[str, Any]:
        stored = _inputs(home)
        tried = usual_settings(stored.rules, lookback_days=stored.window.days, stored_days=stored.stored_days)
        return {"lines": stored.backtest(tried).height}

    return made


def _inputs(home: str) -> Inputs:
    tables = Tables(Path(home), SLUG)
    return Inputs(
        counts=tables.logon_counts(WINDOW, run_id=RUN),
        read_inventory=tables.read,
        more_counts=tables.logon_counts(FOR_TUNING, run_id=RUN),
        writes=tables.writes().collect(),
        decisions=tables.read("owner_decisions").collect(),
        rules=Rules(exclude_users=EXCLUDED),
        user_value_field="user_email",
        window=WINDOW,
        stored_days=FOR_TUNING.days,
        last_settled=FOR_TUNING.last,
        audit=with_answers(empty(OwnerDecisions), empty(AuditSample)),
    )


def measure_tuning(home: Path, size: Size, repetitions: int) -> Experiment:
    """Tune on evidence of this size."""
    folder = home / f"tuning-{size.rows}-{FOR_TUNING.days}"
    prepare(folder, rows=size.rows, hosts=size.hosts, users=size.users, window=FOR_TUNING)
    tables = Tables(folder, SLUG)
    tables.prepare()
    if tables.read("owner_decisions").limit(1).collect().is_empty():
        product(str(folder))()
    names = {"the back-test": "back_test", "all tables of tuning": "tune"}
    one, every = alternate(
        [function(name, f"{__name__}:{of}", home=str(folder)) for name, of in names.items()], repetitions
    )
    name, lines = f"{size.rows:,} rows", one.fastest.counts["lines"]
    return Experiment(
        f"Tuning: {name} over {FOR_TUNING.days} days, {size.hosts:,} hosts, {size.users:,} users",
        [one, every],
        size.goals(7, f"{name}: the back-test", one, every),
        [f"The back-test has {lines:,} lines: each combination of the settings that are tried."],
    )
