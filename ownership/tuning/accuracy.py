"""How often the owner decided on is the right one, by two measures that do not depend on each other.

`people` compares with owners that were set by hand (rules 9.1), `future` with who leads the logons afterwards
(rules 9.2).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from types import MappingProxyType

import polars as pl

from ownership.codes import SUCCESSES
from ownership.declaration import polars_schema
from ownership.evidence import Evidence, leaders, share_band, user_totals, window_before
from ownership.rules import Rules, first_that_holds, names_owner
from ownership.tables import Accuracy
from ownership.windows import Window

HOLDOUT_DAYS = 7
"""Days that are held back for the measure `future` (rules 9.2)."""

ACTIVE_DAYS_BANDS: Mapping[str, int] = MappingProxyType({"1": 1, "2 to 4": 4, "5 to 9": 9, "10 to 19": 19})
"""Bands of the leader's active days and the last day of each; what is above is `MANY_ACTIVE_DAYS`."""

MANY_ACTIVE_DAYS = "20 or more"
NO_DEPARTMENT = "none known"
ALL = "all"
Z_95 = 1.959963984540054
"""Two-sided 95% quantile of the normal distribution."""


def wilson(right: pl.Expr, compared: pl.Expr) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """The share of right answers with Wilson's 95% score interval (E. B. Wilson, JASA 22, 1927).

    Returns:
        precision, low, high: 0 to 1; null where nothing was compared.
    """
    n = pl.when(compared > 0).then(compared.cast(pl.Float64))
    share, z2 = right / n, Z_95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 / (1 + z2 / n) * (share * (1 - share) / n + z2 / (4 * n * n)).sqrt()
    return share, (centre - half).clip(0, 1), (centre + half).clip(0, 1)


def writes_that_hold(hosts: pl.DataFrame, writes: pl.LazyFrame) -> pl.LazyFrame:
    """The last write of each host, where it gave the owner whom the inventory shows.

    Args:
        hosts: Rows of `inventory_hosts`.
        writes: Rows of `owner_writes`.

    Returns:
        The rows of `writes` that are those.
    """
    # What was written or put back after the inventory was listed says nothing of the owners in that list.
    rows = (
        writes.with_row_index("row")
        .filter(pl.col("outcome").is_in(SUCCESSES))
        .join(hosts.lazy().select("host_id", "owner_ids", "listed_at"), on="host_id")
        .filter(pl.col("completed_at") <= pl.col("listed_at"))
    )
    owner = pl.col("new_values").struct.field("owner")
    holds = (pl.col("owner_ids").list.len() == 1) & (pl.col("owner_ids").list.first() == owner)
    return (
        rows.join(rows.group_by("host_id").agg(pl.col("row").max_by("completed_at")), on="row", how="semi")
        .filter(pl.col("outcome") == "written", holds)
        .drop("row", "owner_ids", "listed_at")
    )


def owners_set_by_hand(hosts: pl.DataFrame, writes: pl.DataFrame) -> pl.DataFrame:
    """Which hosts have an owner that this tool did not write, or that changed since (rules 9.1).

    Args:
        hosts: Rows of `inventory_hosts`.
        writes: Rows of `owner_writes` of all runs on the target.

    Returns:
        host_id, owner_ids of those hosts.
    """
    return (
        hosts.lazy()
        .filter(pl.col("owner_ids").list.len() > 0)
        .join(writes_that_hold(hosts, writes.lazy()), on="host_id", how="anti")
        .select("host_id", "owner_ids")
        .collect()
    )


def decided(evidence: Evidence, totals: pl.DataFrame) -> pl.LazyFrame:
    """Who leads each host, and what would follow if that names an owner.

    Args:
        evidence: What was counted.
        totals: What `user_totals` gives for a window.

    Returns:
        subject, eligible, host_id, user, events, weight, active_days, total_events, total_weight, user_count,
        share_band, resolved_owner; matched, to_write, agree, conflict (whether that would follow); a row for
        each host with logons.
    """
    owners, owner = pl.col("owner_ids").fill_null([]), pl.col("resolved_owner")
    of_asset, owned = owner.is_not_null() & pl.col("host_id").is_not_null(), owners.list.len() > 0
    return (
        leaders(totals)
        .lazy()
        .join(evidence.subjects.lazy(), on="subject")
        .join(evidence.users.lazy(), on="user", how="left")
        .with_columns(
            share_band(),
            matched=owner.is_not_null(),
            to_write=of_asset & ~owned,
            agree=of_asset & owners.list.contains(owner),
            conflict=of_asset & owned & ~owners.list.contains(owner),
        )
    )


@dataclass(frozen=True)
class Judged:
    """What is decided on a window, and whether both measures call it right.

    Attributes:
        now: As `decided` on the window, with right_by_people; null: no owner was set by hand, or none was
            decided on.
        before: As `decided` on a window of the same length that ends before the days held back, with
            right_afterwards: whether the leader leads alone in those days; null: nobody logged on in them,
            or the leader is no user asset, so that no owner was decided on.
    """

    now: pl.DataFrame
    before: pl.DataFrame


def judged(
    evidence: Evidence,
    by_hand: pl.DataFrame,
    windows: Iterable[int],
    *,
    last: date,
    last_settled: date,
    holdout_days: int = HOLDOUT_DAYS,
) -> dict[int, Judged]:
    """Decide on windows of several lengths, and compare with both measures (rules 9.1, 9.2).

    Args:
        evidence: What was counted, over the longest window and the days held back before it.
        by_hand: host_id of the hosts whose owner was set by hand.
        windows: Days of each window.
        last: The last day of each window.
        last_settled: The last day held back for the measure `future`.
        holdout_days: How many days are held back.
    """
    cut = last_settled - timedelta(days=holdout_days)
    later = leaders(user_totals(evidence, Window(cut + timedelta(days=1), last_settled))).select(
        "subject", later="user", tied_later="tied"
    )
    set_by_hand = by_hand.select("host_id", by_hand=pl.lit(value=True))
    leads_alone = (pl.col("user") == pl.col("later")) & ~pl.col("tied_later")

    def of_window(days: int) -> Judged:
        now = decided(evidence, user_totals(evidence, window_before(last, days)))
        before = decided(evidence, user_totals(evidence, window_before(cut, days)))
        return Judged(
            now.join(set_by_hand.lazy(), on="host_id", how="left")
            .with_columns(right_by_people=pl.when("by_hand", "matched").then("agree"))
            .drop("by_hand")
            .collect(),
            before.join(later.lazy(), on="subject", how="left")
            .with_columns(right_afterwards=pl.when("matched").then(leads_alone))
            .collect(),
        )

    return {days: of_window(days) for days in windows}


def accuracy(judged: Judged, users: pl.DataFrame, *, rules: Rules) -> pl.DataFrame:
    """Count how often both measures say that the owner decided on is the right one (rules 9.1, 9.2).

    Args:
        judged: What is decided on the look-back window.
        users: Rows of `inventory_users`.
        rules: The instance's rules.

    Returns:
        Rows of `accuracy`, sorted by measure, by and value.
    """
    named = pl.col("eligible") & names_owner(rules)
    departments = users.select(
        resolved_owner="user_id", department=pl.col("user_department").fill_null(NO_DEPARTMENT)
    )
    compared = pl.concat(
        frame.filter(named)
        .select(pl.lit(measure).alias("measure"), "share_band", "active_days", "resolved_owner", right=right)
        .drop_nulls("right")
        for measure, frame, right in (
            ("people", judged.now, "right_by_people"),
            ("future", judged.before, "right_afterwards"),
        )
    ).join(departments, on="resolved_owner", how="left")
    cuts = (
        ("all", pl.lit(ALL)),
        ("share_band", pl.col("share_band")),
        ("active_days", active_days_band()),
        ("department", pl.col("department").fill_null(NO_DEPARTMENT)),
    )
    rows = pl.concat(
        compared.group_by("measure", pl.lit(by).alias("by"), value.alias("value")).agg(
            hosts=pl.len().cast(pl.Int64), right_hosts=pl.sum("right").cast(pl.Int64)
        )
        for by, value in cuts
    )
    # A measure that compared nothing says so: a row of its own, without a share.
    both = pl.DataFrame(
        [(measure, "all", ALL, 0, 0) for measure in ("future", "people")], schema=rows.schema, orient="row"
    )
    rows = pl.concat([rows, both.join(rows, on=("measure", "by", "value"), how="anti")])
    precision, low, high = wilson(pl.col("right_hosts"), pl.col("hosts"))
    return (
        rows.with_columns(precision=precision, low=low, high=high)
        .select(*polars_schema(Accuracy))
        .sort("measure", "by", "value")
    )


def active_days_band() -> pl.Expr:
    """The band of the leader's active days."""
    bands = ((name, pl.col("active_days") <= last) for name, last in ACTIVE_DAYS_BANDS.items())
    return first_that_holds(bands).fill_null(MANY_ACTIVE_DAYS)
