"""How far the evidence reaches: from logon events to owners, and day by day.

`owner_decisions` says what was decided, and why; here it is only counted.
"""

from collections.abc import Mapping, Sequence
from datetime import date

import polars as pl

from ownership.codes import NOTHING_HELD, SUCCESSES
from ownership.rules import NAMING
from ownership.windows import gaps

_WITH_LOGONS = pl.col("total_events") > 0
_NAMED = _WITH_LOGONS & pl.col("evidence").is_in(NAMING)
_MATCHED = _NAMED & pl.col("match").eq_missing("matched")

STAGES: Mapping[str, pl.Expr] = {
    "hosts known": pl.col("evidence").is_not_null(),
    "with logons": _WITH_LOGONS,
    "one winner": _NAMED,
    "one user asset": _MATCHED,
    "to write": _MATCHED & (pl.col("action") == "write"),
    "agrees": _MATCHED & (pl.col("action") == "agree"),
    "conflict": _MATCHED & (pl.col("action") == "conflict"),
    "no host asset": _MATCHED & (pl.col("action") == "no_host"),
}
"""Which decisions reach each stage from logons to owners: four stages, each a part of the previous one, and
the branches, which add up to the last stage."""

_REASONS = ("evidence", "evidence", "match")

_OWNER_KNOWN = (pl.col("evidence") != "unreadable_asset") | pl.col("existing_owner").is_not_null()


def funnel(decisions: pl.DataFrame) -> pl.DataFrame:
    """Count the hosts that reach each of `STAGES`: stage, hosts, left_out (why others did not)."""
    reason = pl.format("{} {}", "reason", "hosts")
    left_out = drop_outs(decisions).group_by("stage").agg(left_out=reason.str.join(", "))
    hosts = decisions.select(holds.sum().cast(pl.Int64).alias(stage) for stage, holds in STAGES.items())
    stages = hosts.unpivot(variable_name="stage", value_name="hosts")
    return stages.join(left_out, on="stage", how="left", maintain_order="left")


def drop_outs(decisions: pl.DataFrame) -> pl.DataFrame:
    """Count the hosts that reach a stage and not the next one: stage, reason, hosts, most hosts first."""
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
    """Find who owns each host asset now: as listed, with what runs wrote, undid and saw since.

    The columns of the view of that name, without names and addresses, in any order; a planned row that looks
    written counts.
    """
    copied, done = ("department", "criticality"), pl.col("outcome").is_in(SUCCESSES)
    held, sent = pl.col("old_values").struct, pl.when(done).then("new_values").struct
    owner, *values = (pl.coalesce(sent.field(name), held.field(name)) for name in ("owner", *copied))
    met = (pl.col("outcome") == "owned_meanwhile") & held.field("owner").is_not_null()
    looks = (
        writes.filter(done | met | (pl.col("message") == NOTHING_HELD))
        .select(
            "host_id",
            pl.coalesce(owner.str.split(","), pl.lit([], pl.List(pl.String))).alias("owner_ids"),
            *values,
            seen_at="completed_at",
            wrote=sent.field("owner"),
            wrote_at="completed_at",
            run_id="run_id",
        )
        .join(hosts.lazy(), on="host_id", how="semi")
    )
    listed = hosts.lazy().select("host_id", "owner_ids", *copied, seen_at="listed_at")
    given = pl.col("wrote").is_not_null()
    ours = pl.col("owner_ids").list.contains(pl.col("wrote")).fill_null(value=False)
    return (
        pl.concat([listed, looks], how="diagonal")
        .sort("seen_at", maintain_order=True)
        .group_by("host_id")
        .agg(
            pl.last("owner_ids", *copied, "seen_at"),
            pl.col("wrote", "wrote_at", "run_id").filter(given).last(),
        )
        .select(
            "host_id",
            pl.col("owner_ids").list.filter(pl.element() != ""),
            *(pl.when(pl.col(name) != "").then(name) for name in copied),
            source=pl.when(ours).then(pl.lit("asset-owners")).otherwise(pl.lit("inventory")),
            since=pl.when(ours).then("wrote_at").otherwise("seen_at"),
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
