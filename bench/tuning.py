"""Tuning: from the stored counts of 67 days to the back-test, and to all its tables."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench import resolution
from bench.evidence import RUN, SLUG, WINDOW, prepare
from bench.results import Experiment, memory, seconds
from bench.timing import alternate, function
from ownership.declaration import empty
from ownership.rules import Rules
from ownership.tables import AuditSample, OwnerDecisions
from ownership.tuning.accuracy import HOLDOUT_DAYS
from ownership.tuning.backtest import WINDOWS, usual_settings
from ownership.tuning.confidence import with_answers
from ownership.tuning.inputs import Inputs, tuning_tables
from ownership.windows import Window
from resources.store.tables import Tables

STORED = Window(WINDOW.last - timedelta(days=max(WINDOWS) + HOLDOUT_DAYS - 1), WINDOW.last)


def product(home: str) -> Callable[[], dict[str, Any]]:
    """Make the tables of tuning, as the job does; they are not stored."""

    def tune() -> dict[str, Any]:
        stored = _inputs(home)
        made = tuning_tables(stored, stored.more_counts)
        return {"lines": made["threshold_backtest"].height, "accounts": made["account_profiles"].height}

    return tune


def back_test(home: str) -> Callable[[], dict[str, Any]]:
    """Make `threshold_backtest` alone."""

    def test() -> dict[str, Any]:
        stored = _inputs(home)
        tried = usual_settings(stored.rules, lookback_days=stored.window.days, stored_days=stored.stored_days)
        return {"lines": stored.backtest(tried).height}

    return test


def _inputs(home: str) -> Inputs:
    tables = Tables(Path(home), SLUG)
    return Inputs(
        counts=tables.logon_counts(WINDOW, run_id=RUN),
        read_inventory=tables.read,
        more_counts=tables.logon_counts(STORED, run_id=RUN),
        writes=tables.writes().collect(),
        decisions=tables.read("owner_decisions").collect(),
        rules=Rules(exclude_users=resolution.EXCLUDED),
        user_value_field="user_email",
        window=WINDOW,
        stored_days=STORED.days,
        last_settled=STORED.last,
        audit=with_answers(empty(OwnerDecisions), empty(AuditSample)),
    )


def measure(home: Path, size: resolution.Size, repetitions: int) -> Experiment:
    """Tune on evidence of this size."""
    folder = home / f"tuning-{size.rows}-{STORED.days}"
    prepare(folder, rows=size.rows, hosts=size.hosts, users=size.users, window=STORED)
    tables = Tables(folder, SLUG)
    tables.prepare()
    if tables.read("owner_decisions").limit(1).collect().is_empty():
        resolution.product(str(folder))()
    one, every = alternate(
        [
            function("the back-test", f"{__name__}:back_test", home=str(folder)),
            function("all tables of tuning", f"{__name__}:product", home=str(folder)),
        ],
        repetitions,
    )
    name = f"{size.rows:,} rows"
    figures = []
    if size.most_seconds:
        figures.append(seconds(7, f"{name}: the back-test", one, size.most_seconds))
    if size.most_gb:
        figures.append(memory(7, f"{name}: peak memory of the back-test", one, size.most_gb))
        figures.append(memory(7, f"{name}: peak memory of all tables of tuning", every, size.most_gb))
    lines = one.fastest.counts["lines"]
    return Experiment(
        f"Tuning: {name} over {STORED.days} days, {size.hosts:,} hosts, {size.users:,} users",
        [one, every],
        figures,
        [f"The back-test has {lines:,} lines: each combination of the settings that are tried."],
    )
