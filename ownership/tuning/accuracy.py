"""How often the owner decided on is the right one, by three measures (rules 9.1, 9.2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

import polars as pl

from ownership.decisions import HAS_OWNER
from ownership.declaration import polars_schema
from ownership.history import last_writes
from ownership.rules import Rules, exceeds_threshold, first_that_holds, names_owner
from ownership.tables import Accuracy
from ownership.tuning.claims import wilson

HOLDOUT_DAYS = 7
"""Days that are held back for the measure `future` (rules 9.2)."""
USUAL_PART = 0.75
"""Part of the usual logons that the days held back must have; holidays have fewer, of other people."""

SHARE_BANDS: Mapping[str, pl.Expr] = {
    "only user": pl.col("user_count") == 1,
    "up to 60%": ~exceeds_threshold(60),
    "60 to 70%": ~exceeds_threshold(70),
    "70 to 80%": ~exceeds_threshold(80),
    "80 to 90%": ~exceeds_threshold(90),
    "over 90%": pl.lit(value=True),
}
"""Bands of the primary user's share, in rows of `evidence.primary_users`."""
_DAYS = {"1": 1, "2 to 4": 4, "5 to 9": 9, "10 to 19": 19}
BANDS: Mapping[str, pl.Expr] = {
    "share_band": first_that_holds(SHARE_BANDS.items()),
    "active_days_band": first_that_holds(
        (name, pl.col("active_days") <= most) for name, most in _DAYS.items()
    ).fill_null("20 or more"),
}
TRAITS: Mapping[str, str] = {
    "share": "the primary user's share",
    "active_days": "the primary user's active days",
    "user_count": "number of users",
    "last_seen": "the primary user's last logon",
    "hosts_led": "number of hosts of the primary user",
}
"""What hosts whose owner somebody set, and all others, may differ in (rules 9.4): columns and words."""


@dataclass(frozen=True)
class Comparison:
    """What would be decided on a window if every primary user was named, and whether that is right.

    Both frames have the columns of `decisions.with_action` and `TRAITS`. `now` has those of `owners_known`,
    right_by_people (null: no owner set by hand, or none decided on), right_by_audit (null: no answer) and
    audited (an audit could have drawn this owner). `before`, a window as long that ends before the days held
    back, has right_afterwards (null: nobody logged on in them, or the primary user has no user asset, or the
    days are not usual).
    """

    now: pl.DataFrame
    before: pl.DataFrame
    usual: bool


def owners_known(hosts: pl.DataFrame, writes: pl.DataFrame) -> pl.DataFrame:
    """Return who set the owner of each host (rules 9.1): host_id, by_hand, right_by_writes, in_training_half.

    An owner that we wrote is not set by hand; right_by_writes says whether the host still has it. The half in
    training chooses the best settings, and the other half judges them.
    """
    halves = [crc32(host_id.encode()) % 2 == 0 for host_id in hosts["host_id"]]
    ours = last_writes(hosts, writes.lazy()).filter(outcome="written")
    return (
        hosts.lazy()
        .with_columns(in_training_half=pl.Series(halves, dtype=pl.Boolean))
        .join(ours.select("host_id", right_by_writes="holds"), on="host_id", how="left")
        .select(
            "host_id",
            "right_by_writes",
            "in_training_half",
            by_hand=HAS_OWNER & pl.col("right_by_writes").is_null(),
        )
        .collect()
    )


def accuracy(judged: Comparison, users: pl.DataFrame, *, rules: Rules) -> pl.DataFrame:
    """Count how often each measure says that the owner decided on is the right one.

    `users` are rows of `inventory_users`. Rows of `accuracy`, sorted by measure, by and value.
    """
    departments = users.select(resolved_owner="user_id", department="user_department")
    measures = (
        ("people", judged.now.filter(names_owner(rules)), "right_by_people"),
        ("future", judged.before.filter(names_owner(rules)), "right_afterwards"),
        ("corrected", judged.now, "right_by_writes"),
    )
    columns = ("username", "share_band", "active_days_band", "resolved_owner")
    judged_hosts = pl.concat(
        frame.select(*columns, measure=pl.lit(measure), right=right).drop_nulls("right")
        for measure, frame, right in measures
    ).join(departments, on="resolved_owner", how="left")
    parts = {
        "all": pl.lit("all"),
        "share_band": pl.col("share_band"),
        "active_days": pl.col("active_days_band"),
        "department": pl.col("department").fill_null("none known"),
    }
    counted = pl.concat(
        judged_hosts.group_by("measure", "username", by=pl.lit(by), value=value)
        .agg(hosts=pl.len().cast(pl.Int64), right_hosts=pl.sum("right").cast(pl.Int64))
        .group_by("measure", "by", "value")
        .agg(pl.sum("hosts", "right_hosts"), squares=(pl.col("hosts") ** 2).sum())
        for by, value in parts.items()
    )
    compared = counted.select("measure", "by", "value", "hosts", "right_hosts", "squares").rows()
    # A measure that compared nothing says so: a row of its own, without a share.
    compared += [
        (measure, "all", "all", 0, 0, 0) for measure, *_ in measures if measure not in counted["measure"]
    ]
    rows = [(*row, hosts, right, *wilson(right, hosts, squares)) for *row, hosts, right, squares in compared]
    return pl.DataFrame(rows, polars_schema(Accuracy), orient="row").sort("measure", "by", "value")
