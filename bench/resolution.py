"""Resolution: from the stored counts and assets to owner_decisions, against one SQL statement and pandas."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from bench.evidence import RUN, SLUG, WINDOW
from ownership.decisions import Rules, owner_decisions
from ownership.evidence import host_user_shares
from ownership.matching import username_matches
from resources.tables import Tables

EXCLUDED = ("svc_*", "*$")
DECIDED_AT = datetime(2026, 1, 31, tzinfo=UTC)

MACROS = r"""
CREATE TEMP MACRO fold(name) AS nullif(nullif(trim(nfc_normalize(lower(name))), ''), '-');
CREATE TEMP MACRO fold_user(name) AS fold(split_part(split_part(name, '\', -1), '@', 1));
CREATE TEMP MACRO excluded(name) AS name GLOB 'svc_*' OR name GLOB '*$';
"""


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
        shares = host_user_shares(
            tables.logon_counts(WINDOW, run_id=RUN), exclude_users=EXCLUDED, hostname_match="exact"
        )
        at = done("shares", at)
        tables.write("host_user_shares", shares, run_id=RUN, publish=True)
        del shares
        at = done("shares validated and stored", at)
        matches = username_matches(
            tables.scan("host_user_shares", run_id=RUN),
            tables.scan("inventory_users", run_id=RUN),
            user_value_field="user_email",
        )
        tables.write("username_matches", matches, run_id=RUN, publish=True)
        at = done("matches", at)
        decisions = owner_decisions(
            tables.scan("host_user_shares", run_id=RUN),
            tables.scan("username_matches", run_id=RUN),
            tables.scan("inventory_hosts", run_id=RUN),
            rules=Rules(exclude_users=EXCLUDED),
            window=WINDOW,
            decided_at=DECIDED_AT,
            run_id=RUN,
        )
        tables.write("owner_decisions", decisions, run_id=RUN, publish=True)
        done("decisions", at)
        return {"decisions": decisions.height, "parts": parts}

    return resolve


def duckdb_statement(home: str) -> Callable[[], dict[str, Any]]:
    """The same rules in `resolution.sql`; it stores decisions alone, unchecked."""
    folder = Tables(Path(home), SLUG).folder
    statement = Path(__file__).with_name("resolution.sql").read_text(encoding="utf-8")
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
        return {"decisions": connection.fetchall()[0][0]}

    return resolve


def differences(home: Path) -> list[str]:
    """Names of columns in which the contenders' decisions differ; they must not."""
    folder = Tables(home, SLUG).folder
    ours = pl.read_parquet(folder / "owner_decisions.parquet")
    others = [pl.read_parquet(path).cast(dict(ours.schema)) for path in folder.glob("decisions_of_*.parquet")]
    return [
        column
        for other in others
        for column in other.columns
        if not other[column].equals(ours[column], null_equal=True)
    ]
