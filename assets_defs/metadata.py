"""What materializations tell in the UI: tables and plots to look at, and numbers that it plots over time.

Dagster shows Markdown of less than 1,000 characters in place, anything longer behind a click, so tables are
short and plots are entries of their own. The plotting library is imported when a plot is made: starting the
program need not wait for it.
"""

from typing import Any

import dagster as dg
import polars as pl

from ownership.coverage import funnel, owned_percent
from ownership.decisions import summary
from reports.markdown import table

CONFLICT = ("hostname", "host_id", "existing_owner", "resolved_owner")
"""Columns of decisions that tell a conflict."""

MAX_EXAMPLES = 8
MAX_DAYS = 400
"""Days in one plot: more would be narrower than a dot of the screen."""


def examples(rows: pl.DataFrame, *, own_words: tuple[str, ...] = ()) -> dg.MarkdownMetadataValue:
    """The first rows as a table."""
    return dg.MetadataValue.md(table(rows, own_words=own_words, most_rows=MAX_EXAMPLES))


def days_metadata(days: pl.DataFrame) -> dict[str, Any]:
    """Events by day, and the days that lack some.

    Args:
        days: Rows of `ownership.coverage.events_by_day`, at least one.
    """
    from reports.charts import as_markdown, days_plot

    lacking = days.filter(pl.col("state") != "ok").select("day", "state", "events").reverse()
    shown = days.tail(MAX_DAYS)
    title = f"Logon events by day, {shown['day'][0]} to {shown['day'][-1]}"
    metadata = {"events_by_day": dg.MetadataValue.md(as_markdown(days_plot(shown), title))}
    return (
        metadata
        if lacking.is_empty()
        else metadata | {"days_lacking_events": examples(lacking, own_words=("state",))}
    )


def hosts_metadata(hosts: pl.DataFrame) -> dict[str, Any]:
    """How many host assets have an owner before the run, and how many cannot be read.

    Args:
        hosts: Rows of `inventory_hosts`.
    """
    owned = hosts.filter(pl.col("owner_ids").list.len() > 0)
    return {"with_owner": owned.height, "unreadable": hosts["problem"].count()}


def users_metadata(users: pl.DataFrame) -> dict[str, Any]:
    """How many user assets have a department for their hosts to get, and how many cannot be read.

    Args:
        users: Rows of `inventory_users`.
    """
    return {"with_department": users["user_department"].count(), "unreadable": users["problem"].count()}


def matches_metadata(matches: pl.DataFrame) -> dict[str, Any]:
    """How many user names stand for one user asset, for several and for none, and which field said so.

    Args:
        matches: Rows of `username_matches`.
    """
    decisive = matches.filter("decisive")
    users = pl.col("username").n_unique()
    ambiguous = pl.col("username").is_duplicated() | pl.col("problem").is_not_null()
    fields = (
        decisive.group_by(field="matched_by")
        .agg(users=users)
        .sort("users", "field", descending=[True, False])
    )
    return {
        "users": matches["username"].n_unique(),
        "unmatched_users": matches["user_id"].null_count(),
        "ambiguous_users": decisive.filter(ambiguous)["username"].n_unique(),
        "users_by_field": examples(fields),
    }


def shares_metadata(shares: pl.DataFrame, *, threshold_percent: int) -> dict[str, Any]:
    """How many hosts, users and events, and how clear the winners are.

    Args:
        shares: Rows of `host_user_shares`.
        threshold_percent: The share to exceed where a host has several users.
    """
    from reports.charts import as_markdown, shares_plot

    leaders = shares.filter(rank=1)
    plot = shares_plot(leaders, threshold_percent=threshold_percent)
    return {
        "events": shares["events"].sum(),
        "hosts": leaders.height,
        "users": shares["username"].n_unique(),
        "winning_shares": dg.MetadataValue.md(as_markdown(plot, "Hosts by winning share")),
    }


def decisions_metadata(decisions: pl.DataFrame, *, events: int) -> dict[str, Any]:
    """The way from events to owners, as a table and a plot, and what to watch over time.

    Args:
        decisions: Rows of `owner_decisions`.
        events: Logon events that they rest on.
    """
    from reports.charts import as_markdown, funnel_plot

    stages = funnel(decisions)
    new = decisions.filter("new_conflict").sort("host_id")
    plot = as_markdown(funnel_plot(stages), "Hosts from evidence to owner")
    unbroken = stages.with_columns(pl.col("stage").str.replace_all(" ", "\u00a0"))
    words = table(unbroken, own_words=("stage", "left_out"))
    return {
        "funnel": dg.MetadataValue.md(f"{events:,} logon events\n\n{words}"),
        "funnel_plot": dg.MetadataValue.md(plot),
        "events": events,
        "hosts_owned_percent": round(owned_percent(decisions), 1),
        "hosts_to_write": decisions.filter(action="write").height,
        "conflicts": decisions.filter(action="conflict").height,
        "decisions": summary(decisions),
        "new_conflicts": new.height,
        **({} if new.is_empty() else {"first_new_conflicts": examples(new.select(CONFLICT))}),
    }


def outcomes_metadata(writes: pl.DataFrame) -> dict[str, Any]:
    """How many hosts came to which outcome.

    Args:
        writes: Rows of `owner_writes` of one run.
    """
    outcomes = (
        writes.group_by("outcome").agg(hosts=pl.len()).sort("hosts", "outcome", descending=[True, False])
    )
    return {
        "outcomes": "nothing to write" if writes.is_empty() else examples(outcomes, own_words=("outcome",))
    }


def planned_metadata(writes: pl.DataFrame) -> dict[str, Any]:
    """The first hosts of a plan with their owners before and after; nothing where nothing is planned.

    Args:
        writes: Rows of `owner_writes` of one run.
    """
    planned = writes.filter(outcome="planned")
    if planned.is_empty():
        return {}
    before, after = (pl.col(values).struct.field("owner") for values in ("old_values", "new_values"))
    owners = planned.select("hostname", "host_id", owner_before=before, owner=after)
    return {"first_planned": examples(owners)}


def read_to_write_metadata(longest_seconds: float | None) -> dict[str, Any]:
    """The longest time between the look at a host and its write, where anything was written."""
    return {} if longest_seconds is None else {"longest_look_to_write_ms": round(1000 * longest_seconds, 1)}


def writes_metadata(writes: pl.DataFrame, decisions: pl.DataFrame, *, may_write: bool) -> dict[str, Any]:
    """Whether anything was sent, outcomes, the first writes planned or failed, and the first conflicts.

    Args:
        writes: Rows of `owner_writes` of one run.
        decisions: Rows of `owner_decisions` of the same run.
        may_write: Whether the run wrote, or only planned.
    """
    counts = dict(writes["outcome"].value_counts().iter_rows())
    written, failed = counts.get("written", 0), counts.get("failed", 0)
    failures = writes.filter(pl.col("outcome").is_in(["failed", "not_written", "intended"]))
    conflicts = decisions.filter(action="conflict")
    metadata: dict[str, Any] = {
        "result": f"{written:,} hosts written"
        if may_write
        else f"Dry run: nothing is sent, {writes.height:,} hosts to write",
        **outcomes_metadata(writes),
        "rows_of_this_run": writes.height,
        "hosts_written": written,
        "hosts_failed": failed,
        "hosts_owned_percent": round(owned_percent(decisions, written=written), 1),
        "conflicts": conflicts.height,
    }
    metadata |= planned_metadata(writes)
    if not failures.is_empty():
        columns = failures.select("host_id", "outcome", "message")
        metadata["first_failures"] = examples(columns, own_words=("outcome",))
    if not conflicts.is_empty():
        columns = ("host_id", "existing_owner", "resolved_owner", "share")
        metadata["first_conflicts"] = examples(conflicts.select(columns))
    return metadata
