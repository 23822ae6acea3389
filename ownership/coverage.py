"""How far the evidence reaches: from logon events to owners, and day by day."""

from collections.abc import Mapping, Sequence
from datetime import date

import polars as pl

from ownership.declaration import polars_schema
from ownership.rules import NAMING, first_that_holds
from ownership.tables import Coverage
from ownership.windows import gap_days

_ASSET = pl.col("host_id").is_not_null()
_WITH_LOGONS = _ASSET & (pl.col("total_events") > 0)
_NAMED = _WITH_LOGONS & pl.col("evidence").is_in(NAMING)
_MATCHED = _NAMED & pl.col("match").eq_missing("matched")

STAGES: Mapping[str, pl.Expr] = {
    "in the inventory": _ASSET,
    "with logons": _WITH_LOGONS,
    "one primary user": _NAMED,
    "user identified": _MATCHED,
    "to write": _MATCHED & (pl.col("action") == "write"),
    "agrees": _MATCHED & (pl.col("action") == "agree"),
    "conflict": _MATCHED & (pl.col("action") == "conflict"),
    "not in the inventory": ~_ASSET,
}
"""Which decisions reach each stage from logons to owners: four stages, each a part of the previous one, the
branches, which add up to the last stage, and the host names of logons that no host asset has."""

_REASONS = ("evidence", "evidence", "match")
_OWNER_KNOWN = (pl.col("evidence") != "unreadable_asset") | pl.col("existing_owner").is_not_null()


def funnel(decisions: pl.DataFrame) -> pl.DataFrame:
    """Count the hosts that reach each of `STAGES`: stage, hosts, drop_outs (why some get no further)."""
    reason = pl.format("{} {}", "reason", "hosts")
    reasons = drop_outs(decisions).group_by("stage").agg(drop_outs=reason.str.join(", "))
    hosts = decisions.select(holds.sum().cast(pl.Int64).alias(stage) for stage, holds in STAGES.items())
    stages = hosts.unpivot(variable_name="stage", value_name="hosts")
    return stages.join(reasons, on="stage", how="left", maintain_order="left")


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


def coverage_by_department(owners: pl.DataFrame, *, run_id: str) -> pl.DataFrame:
    """Count the hosts of each department, and those with an owner, in rows of `current_owners`.

    Rows of `coverage`; the department is null for hosts without one.
    """
    owned = (pl.col("owner_ids").list.len() > 0).sum()
    counted = owners.group_by("department", run_id=pl.lit(run_id)).agg(hosts=pl.len(), owned=owned)
    return counted.select(polars_schema(Coverage).names()).cast(polars_schema(Coverage)).sort("department")


def events_by_day(days: Sequence[date], fetched: pl.DataFrame, *, timezone: str) -> pl.DataFrame:
    """Give each day its events (null: never fetched) and its state: `ok`, `gap` or `not fetched`."""
    is_gap = pl.col("day").is_in(gap_days(fetched, timezone=timezone))
    states = (("not fetched", pl.col("events").is_null()), ("gap", is_gap))
    return (
        pl.DataFrame({"day": days}, schema={"day": pl.Date})
        .join(
            fetched.group_by("day").agg(events=pl.sum("counted")), on="day", how="left", maintain_order="left"
        )
        .with_columns(state=first_that_holds(states).fill_null("ok"))
    )
