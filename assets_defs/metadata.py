"""What materializations show in the UI: tables to look at, and numbers that it plots over time."""

from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg
import polars as pl

from assets_defs.run import InstanceRun
from ownership.codes import EVIDENCE, MATCH
from ownership.coverage import funnel, owned_percent
from ownership.decisions import summary
from ownership.names import printable
from ownership.rules import NAMING
from ownership.tuning.confidence import CERTAINTY, least_certain_first
from reports.plan import shown_owners
from reports.sentences import COUNTS
from resources.settings import command_line
from resources.store.tables import short_run_id

CONFLICT = ("hostname", "host_id", "existing_owner", "resolved_owner")
"""Columns of decisions that show a conflict."""

_SHOWN_FIRST = ("conflict", "write")
_EVIDENCE = ("action", *dict.fromkeys((*COUNTS, *CERTAINTY)))
MAX_EXAMPLES = 8
MAX_ROWS = 200
"""Hosts in one table: names are in it, and Dagster's records are kept."""


def listed(run: InstanceRun, query: str) -> str:
    """Return the command that lists what a run's tables hold."""
    return command_line(run.instance, "sql", "--run", short_run_id(run.run_id), query)


def examples(name: str, rows: pl.DataFrame) -> dict[str, Any]:
    """Return the first rows as a table under a name; nothing if there are none."""
    return {} if rows.is_empty() else {name: _table(rows.head(MAX_EXAMPLES).to_dicts())}


def _table(rows: Iterable[Mapping[str, Any]]) -> dg.TableMetadataValue:
    """Rows as Dagster shows them, every name as plain text."""
    records = [dg.TableRecord({name: _plain(value) for name, value in row.items()}) for row in rows]
    return dg.MetadataValue.table(records)


def _plain(value: Any) -> str | float:
    if isinstance(value, int | float):
        return round(value, 3)
    return printable(", ".join(map(str, value)) if isinstance(value, list) else str(value or ""))


def days_metadata(days: pl.DataFrame) -> dict[str, Any]:
    """Return the days that lack events, latest first, of rows of `ownership.coverage.events_by_day`."""
    lacking = days.filter(pl.col("state") != "ok").select("day", "state", "events").reverse()
    return examples("days_lacking_events", lacking)


def shares_metadata(shares: pl.DataFrame) -> dict[str, Any]:
    """Count hosts, users and events."""
    return {
        "events": shares["events"].sum(),
        "hosts": shares["hostname"].n_unique(),
        "users": shares["username"].n_unique(),
    }


def decisions_metadata(decisions: pl.DataFrame, *, events: int) -> dict[str, Any]:
    """Return the stages from events to owners, and numbers to watch over time."""
    new = decisions.filter("new_conflict").sort("host_id")
    return {
        "events": events,
        "funnel": _table(funnel(decisions).to_dicts()),
        "hosts_owned_percent": round(owned_percent(decisions), 1),
        "hosts_to_write": decisions.filter(action="write").height,
        "conflicts": decisions.filter(action="conflict").height,
        "decisions": summary(decisions),
        "new_conflicts": new.height,
        **examples("first_new_conflicts", new.select(CONFLICT)),
    }


def owners_metadata(decisions: pl.DataFrame, users: pl.DataFrame, *, see_all: str) -> dict[str, Any]:
    """Return the first hosts with an owner or one to get, and without; the command `see_all` lists all."""
    owner = pl.when(action="write").then("resolved_owner").otherwise("existing_owner")
    owned = decisions.with_columns(owner=owner).drop_nulls(["host_id", "owner"])
    return {
        **_owners(owned.select("host_id", "hostname", "owner", *_EVIDENCE), users, see_all),
        **_without_owner(decisions.filter(action="none")),
    }


def _without_owner(hosts: pl.DataFrame) -> dict[str, Any]:
    """Return the first hosts that the logons give no owner, those with one primary user first, and why."""
    unmatched = pl.when(pl.col("match") != "matched").then(
        pl.col("match").replace_strict(MATCH, default=None)
    )
    why = pl.coalesce(unmatched, pl.col("evidence").replace_strict(EVIDENCE))
    first = hosts.sort(
        pl.col("evidence").is_in(NAMING), "hostname", "host_id", descending=[True, False, False]
    )
    rows = first.head(MAX_ROWS).select(**{"host": "hostname", "host id": "host_id", "why": why})
    return {} if rows.is_empty() else {"hosts_without_owner": _table(rows.to_dicts())}


def _owners(hosts: pl.DataFrame, users: pl.DataFrame, see_all: str) -> dict[str, Any]:
    """Return the first hosts as a table, the least certain first, and how to list all; nothing if none."""
    later = (pl.col("action") != action for action in _SHOWN_FIRST)
    first = least_certain_first(hosts).sort(*later, maintain_order=True).head(MAX_ROWS)
    rows = shown_owners(first, users)
    if not rows:
        return {}
    columns = [column for column in rows[0] if any(row[column] for row in rows)]
    further = hosts.height - len(rows)
    more = {"more_hosts": f"{further:,} more; all of them: {see_all}"} if further else {}
    return {"hosts": _table({column: row[column] for column in columns} for row in rows), **more}


def outcomes_metadata(
    rows: pl.DataFrame, decisions: pl.DataFrame, users: pl.DataFrame, *, see_all: str
) -> dict[str, Any]:
    """Return the outcome of a plan, rows of owner_writes: hosts by outcome, and the first ones.

    `decisions` are those that it rests on, if known; `users` are inventory_users; `see_all` lists all hosts.
    """
    counts = rows["outcome"].value_counts().sort("count", "outcome", descending=[True, False]).iter_rows()
    outcome = pl.when(pl.n_unique("outcome") > 1).then("outcome")  # one that all share stands above
    before = pl.col("old_values").name.suffix_fields("_before").struct.unnest()
    after = pl.col("new_values").struct.unnest()
    hosts = rows.select("host_id", "hostname", before, after, "message", outcome=outcome)
    hosts = hosts.join(decisions.select("host_id", *_EVIDENCE), on="host_id", how="left")
    return {
        "outcomes": ", ".join(f"{number:,} {one}" for one, number in counts) or "nothing to write",
        **_owners(hosts, users, see_all),
    }


def writes_metadata(
    rows: pl.DataFrame, decisions: pl.DataFrame, users: pl.DataFrame, *, see_all: str
) -> dict[str, Any]:
    """Return whether a run sent anything, and the outcome of its plan."""
    counts = dict(rows["outcome"].value_counts().iter_rows())
    done, planned = counts.get("written", 0), f"Nothing is sent: {rows.height:,} hosts to write"
    unsent = rows.filter(pl.col("outcome").is_in(["failed", "not_written", "intended"]))
    return {
        "result": planned if counts.keys() <= {"planned"} else f"{done:,} hosts written",
        **outcomes_metadata(rows, decisions, users, see_all=see_all),
        "hosts_written": done,
        "hosts_failed": counts.get("failed", 0),
        "hosts_owned_percent": round(owned_percent(decisions, written=done), 1),
        **examples("first_failures", unsent.select("host_id", "outcome", "message")),
    }
