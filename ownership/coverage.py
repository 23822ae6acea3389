"""How far the evidence reaches: from logon events to owners, and day by day.

What was decided, and why, stands in `owner_decisions`; here it is only counted.
"""

from collections.abc import Mapping, Sequence
from datetime import date

import polars as pl

from ownership.codes import NOTHING_HELD, SUCCESSES
from ownership.rules import NAMING
from ownership.windows import gaps

BRANCHES: Mapping[str, str] = {
    "write": "to write",
    "agree": "agrees",
    "conflict": "conflict",
    "no_host": "no host asset",
}
"""What follows for a host whose owner is known: action and its words."""

_WITH_LOGONS = pl.col("total_events") > 0
_NAMED = _WITH_LOGONS & pl.col("evidence").is_in(NAMING)
_MATCHED = _NAMED & pl.col("match").eq_missing("matched")

STAGES: Mapping[str, pl.Expr] = {
    "hosts known": pl.col("evidence").is_not_null(),
    "with logons": _WITH_LOGONS,
    "one winner": _NAMED,
    "one user asset": _MATCHED,
    **{words: _MATCHED & (pl.col("action") == action) for action, words in BRANCHES.items()},
}
"""The way from logons to owners, and which decisions come so far: four stages, each a part of the one before,
and the branches, which add up to the last stage."""

_REASONS = ("evidence", "evidence", "match")

_OWNER_KNOWN = (pl.col("evidence") != "unreadable_asset") | pl.col("existing_owner").is_not_null()


def funnel(decisions: pl.DataFrame) -> pl.DataFrame:
    """Count the hosts that come through each of `STAGES`: stage, hosts, left_out (why others did not)."""
    reason = pl.format("{} {}", "reason", "hosts")
    left_out = left_behind(decisions).group_by("stage").agg(left_out=reason.str.join(", "))
    hosts = decisions.select(holds.sum().cast(pl.Int64).alias(stage) for stage, holds in STAGES.items())
    stages = hosts.unpivot(variable_name="stage", value_name="hosts")
    return stages.join(left_out, on="stage", how="left", maintain_order="left")


def left_behind(decisions: pl.DataFrame) -> pl.DataFrame:
    """Count the hosts that come to a stage and not to the next: stage, reason, hosts, most hosts first."""
    stages = list(STAGES.items())
    return pl.concat(
        decisions.filter(holds & ~further)
        .group_by(stage=pl.lit(stage), reason=column)
        .agg(hosts=pl.len())
        .sort("hosts", "reason", descending=[True, False])
        for column, (stage, holds), (_, further) in zip(_REASONS, stages, stages[1:], strict=False)
    )


def owned_percent(decisions: pl.DataFrame, *, written: int = 0) -> float:
    """Share of the host assets that have an owner, with `written` ones more (percent).

    An asset that cannot be read, and of which no owner is known, counts neither way.
    """
    hosts = decisions.drop_nulls("host_id").filter(_OWNER_KNOWN)
    return 100 * (hosts["existing_owner"].count() + written) / max(hosts.height, 1)


def current_owners(hosts: pl.DataFrame, writes: pl.LazyFrame) -> pl.DataFrame:
    """Find who owns each host asset now: as listed, with what runs wrote, put back and saw since.

    The columns of the view of that name, without names and addresses; a planned row that looks written
    counts.
    """
    done, fields = pl.col("outcome").is_in(SUCCESSES), ("owner", "department", "criticality")
    held, sent = pl.col("old_values").struct, pl.when(done).then("new_values").struct
    met = (pl.col("outcome") == "owned_meanwhile") & held.field("owner").is_not_null()
    gives, since = sent.field("owner").is_not_null(), pl.col("completed_at") >= pl.col("listed_at")
    last = (
        writes.filter(done | met | (pl.col("message") == NOTHING_HELD))
        .join(hosts.lazy().select("host_id", "listed_at"), on="host_id")
        .sort("completed_at")
        .group_by("host_id")
        .agg(
            pl.col("completed_at", "run_id").filter(gives).last(),
            sent.field("owner").filter(gives).last().alias("wrote"),
            pl.col("completed_at").filter(since).last().alias("seen_at"),
            *(
                pl.coalesce(sent.field(field), held.field(field)).filter(since).last().alias(f"seen_{field}")
                for field in fields
            ),
        )
    )
    seen, owners = pl.col("seen_at").is_not_null(), pl.col("seen_owner").str.split(",")
    known = {field: pl.when(seen).then(f"seen_{field}").otherwise(field) for field in fields[1:]}
    ours = pl.when(seen).then(owners).otherwise("owner_ids").list.contains(pl.col("wrote"))
    ours = ours.fill_null(value=False)
    return (
        hosts.lazy()
        .join(last, on="host_id", how="left", maintain_order="left")
        .select(
            "host_id",
            pl.when(~seen)
            .then("owner_ids")
            .when(pl.col("seen_owner").fill_null("") == "")
            .then(pl.lit([], pl.List(pl.String)))
            .otherwise(owners)
            .alias("owner_ids"),
            **{field: pl.when(value != "").then(value) for field, value in known.items()},
            source=pl.when(ours).then(pl.lit("asset-owners")).otherwise(pl.lit("inventory")),
            since=pl.when(ours).then("completed_at").otherwise(pl.coalesce("seen_at", "listed_at")),
            run_id=pl.when(ours).then("run_id"),
        )
        .collect()
    )


def events_by_day(days: Sequence[date], fetched: pl.DataFrame, *, timezone: str) -> pl.DataFrame:
    """Give each day its events (null: never fetched) and its state: `ok`, `gap` or `not fetched`."""
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
