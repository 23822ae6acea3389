"""How often the owner decided on is the right one, by three measures (rules 9.1, 9.2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta

import polars as pl

from ownership.decisions import with_action
from ownership.declaration import polars_schema
from ownership.evidence import Evidence, primary_users
from ownership.history import last_writes
from ownership.rules import Rules, exceeds_threshold, first_that_holds, names_owner
from ownership.tables import Accuracy
from ownership.tuning.audit import in_training_half
from ownership.tuning.claims import wilson
from ownership.windows import Window, window_before

HOLDOUT_DAYS = 7
"""Days that are held back for the measure `future` (rules 9.2)."""

SHARE_BANDS: Mapping[str, int] = {
    "up to 60%": 60,
    "60 to 70%": 70,
    "70 to 80%": 80,
    "80 to 90%": 90,
    "over 90%": 100,
}
"""Bands of the primary user's share on hosts with several users, and the share (percent) that ends each."""

ONLY_USER = "only user"
_DAYS = {"1": 1, "2 to 4": 4, "5 to 9": 9, "10 to 19": 19}
_MANY_DAYS = "20 or more"
NO_DEPARTMENT = "none known"
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
    back, has right_afterwards (null: nobody logged on in them, or the primary user has no user asset).
    """

    now: pl.DataFrame
    before: pl.DataFrame


def owners_known(hosts: pl.DataFrame, writes: pl.DataFrame) -> pl.DataFrame:
    """Return who set the owner of each host (rules 9.1): host_id, by_hand, right_by_writes, in_training_half.

    An owner that we wrote is not set by hand; right_by_writes says whether the host still has it.
    """
    ours = last_writes(hosts, writes.lazy()).filter(outcome="written")
    return (
        hosts.lazy()
        .with_columns(in_training_half=in_training_half(hosts["host_id"]))
        .join(ours.select("host_id", right_by_writes="holds"), on="host_id", how="left")
        .select(
            "host_id",
            "right_by_writes",
            "in_training_half",
            by_hand=(pl.col("owner_ids").list.len() > 0) & pl.col("right_by_writes").is_null(),
        )
        .collect()
    )


def compare(
    evidence: Evidence,
    matches: pl.DataFrame,
    known: pl.DataFrame,
    audit: pl.DataFrame,
    *,
    days: int,
    last: date,
    last_settled: date,
) -> Comparison:
    """Decide on a window of `days` days, and on an earlier one, and compare with what is known.

    `known` is what `owners_known` returns, `audit` what `audit.with_answers` returns, `last_settled` the last
    of the days held back.
    """
    cut = last_settled - timedelta(days=HOLDOUT_DAYS)

    bands = [(name, ~exceeds_threshold(upper)) for name, upper in SHARE_BANDS.items()]
    days_bands = [(name, pl.col("active_days") <= most) for name, most in _DAYS.items()]

    def decide(window: Window) -> pl.LazyFrame:
        users = primary_users(evidence.restrict(window)).lazy().filter(pl.col("total_events") > 0)
        return with_action(users, matches, named=pl.lit(value=True)).with_columns(
            share_band=first_that_holds([(ONLY_USER, pl.col("user_count") == 1), *bands]),
            active_days_band=first_that_holds(days_bands).fill_null(_MANY_DAYS),
            hosts_led=pl.len().over("username"),
        )

    afterwards = primary_users(evidence.restrict(Window(cut + timedelta(days=1), last_settled))).lazy()
    later = afterwards.select(
        "subject", later="username", tied=pl.col("weight") == pl.col("runner_up_weight")
    )
    is_later_user = (pl.col("username") == pl.col("later")) & ~pl.col("tied").fill_null(value=False)
    matched = pl.col("match") == "matched"
    return Comparison(
        decide(window_before(last, days))
        .join(known.lazy(), on="host_id", how="left")
        .join(
            audit.lazy().with_columns(audited=pl.lit(value=True)),
            on=("host_id", "resolved_owner"),
            how="left",
        )
        .with_columns(right_by_people=pl.when("by_hand", matched).then(pl.col("action") == "agree"))
        .collect(),
        decide(window_before(cut, days))
        .join(later, on="subject", how="left")
        .with_columns(right_afterwards=pl.when(matched).then(is_later_user))
        .collect(),
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
        "department": pl.col("department").fill_null(NO_DEPARTMENT),
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
