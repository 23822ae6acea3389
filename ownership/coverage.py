"""How far the evidence reaches: from logon events to owners, and day by day.

What was decided, and why, stands in `owner_decisions`; here it is only counted.
"""

from collections.abc import Sequence
from datetime import date
from types import MappingProxyType

import polars as pl

from ownership.rules import NAMING, exceeds_threshold
from ownership.windows import gaps

BRANCHES = MappingProxyType(
    {
        "write": "to write",
        "agree": "agrees",
        "conflict": "conflict",
        "no_host": "no host asset",
    }
)
"""What follows for a host whose owner is known: action and its words."""

STRENGTHS = ("leading user, too few logons", "leading user, enough logons", "only user")
"""How strong the leading user of a host may be."""

SHARE_STEP_PERCENT = 5


def funnel(decisions: pl.DataFrame) -> pl.DataFrame:
    """Count the hosts that come through each stage, and why the others did not.

    Args:
        decisions: Rows of `owner_decisions`.

    Returns:
        stage, hosts, left_out: four stages, each a part of the one before, and a row for each of `BRANCHES`,
        which add up to the last stage. left_out counts the values of evidence or match that end here, most
        hosts first; null where none do.
    """
    with_logons = decisions.filter(pl.col("total_events") > 0)
    named = with_logons.filter(pl.col("evidence").is_in(NAMING))
    matched = named.filter(match="matched")
    stages = (
        ("hosts known", decisions, decisions.filter(total_events=0)["evidence"]),
        ("with logons", with_logons, with_logons.filter(~pl.col("evidence").is_in(NAMING))["evidence"]),
        ("one winner", named, named.filter(pl.col("match") != "matched")["match"]),
        ("one user asset", matched, matched["match"].clear()),
    )
    rows = [(stage, frame.height, _counted(left_out)) for stage, frame, left_out in stages]
    rows += [(words, matched.filter(action=action).height, None) for action, words in BRANCHES.items()]
    return pl.DataFrame(
        rows, schema={"stage": pl.String, "hosts": pl.Int64, "left_out": pl.String}, orient="row"
    )


def _counted(reasons: pl.Series) -> str | None:
    counts = reasons.value_counts().sort("count", reasons.name, descending=[True, False])
    return ", ".join(f"{reason} {count:,}" for reason, count in counts.iter_rows()) or None


def owned_percent(decisions: pl.DataFrame, *, written: int = 0) -> float:
    """Share of the host assets that had an owner when the inventory was listed (percent); 0 without any.

    An asset that cannot be read, and of which no owner is known, counts neither way.

    Args:
        decisions: Rows of `owner_decisions`.
        written: Hosts that got an owner since.
    """
    known = (pl.col("evidence") != "unreadable_asset") | pl.col("existing_owner").is_not_null()
    hosts = decisions.drop_nulls("host_id").filter(known)
    return 100 * (hosts["existing_owner"].count() + written) / max(hosts.height, 1)


def shares_of_leaders(leaders: pl.DataFrame, *, threshold_percent: int) -> pl.DataFrame:
    """Count the hosts by how strong their leading user is, in steps of `SHARE_STEP_PERCENT`.

    Args:
        leaders: events, total_events of the first user of each host; counts, so that a share of exactly the
            threshold falls on its proper side.
        threshold_percent: The share to exceed where a host has several users.

    Returns:
        upper_percent (a share of exactly 60% belongs to the step that ends at 60), strength (of `STRENGTHS`),
        hosts; sorted, without steps that nobody reaches.
    """
    events, total = pl.col("events"), pl.col("total_events")
    weak, strong, alone = map(pl.lit, STRENGTHS)
    return (
        leaders.group_by(
            upper_percent=-(-100 * events // (SHARE_STEP_PERCENT * total)) * SHARE_STEP_PERCENT,
            strength=pl.when(events == total)
            .then(alone)
            .when(exceeds_threshold(threshold_percent))
            .then(strong)
            .otherwise(weak),
        )
        .agg(hosts=pl.len())
        .sort("upper_percent", "strength")
    )


def events_by_day(days: Sequence[date], fetched: pl.DataFrame, *, timezone: str) -> pl.DataFrame:
    """Tell for each day how many logon events were counted, and whether some look lost.

    Args:
        days: The days of interest.
        fetched: Rows of `logon_days` for those of them that were fetched.
        timezone: Of the days.

    Returns:
        day, events (null: never fetched), state: `ok`, `gap` as in `ownership.windows.gaps`, `not fetched`.
    """
    return (
        pl.DataFrame({"day": days}, schema={"day": pl.Date})
        .join(fetched.select("day", events="counted"), on="day", how="left", maintain_order="left")
        .with_columns(
            state=pl.when(pl.col("events").is_null())
            .then(pl.lit("not fetched"))
            .when(pl.col("day").is_in(gaps(fetched, timezone=timezone)))
            .then(pl.lit("gap"))
            .otherwise(pl.lit("ok"))
        )
    )
