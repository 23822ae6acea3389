"""Logon counts by day with names as numbers, so that many windows and rules can be tried on one reading."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from types import MappingProxyType

import polars as pl

from ownership.leaders import left_out, subjects_of
from ownership.logons import SPELLINGS, logons_by_day, logons_by_user, normalised_names
from ownership.matching import candidates, username_matches
from ownership.rules import Rules, exceeds_threshold, first_that_holds
from ownership.windows import Window

SHARE_BANDS: Mapping[str, int] = MappingProxyType(
    {"up to 60%": 60, "60 to 70%": 70, "70 to 80%": 80, "80 to 90%": 90, "over 90%": 100}
)
"""Bands of the leader's share where a host has several users, and the share (percent) that each ends with."""

ONLY_USER = "only user"


@dataclass(frozen=True)
class Evidence:
    """What was counted, by day, and what the inventory says about the hosts and users.

    Attributes:
        days: day, subject, user, events, weight; one row for each day, host and user with a logon.
        subjects: subject, host_id, hostname, owner_ids, eligible (whether logons may name an owner of it).
        users: user, username, resolved_owner (null: no user asset, or several).
        rules: The rules under which they count.
    """

    days: pl.DataFrame
    subjects: pl.DataFrame
    users: pl.DataFrame
    rules: Rules


def evidence_by_day(
    counts: pl.LazyFrame,
    hosts: pl.DataFrame,
    users: pl.DataFrame,
    *,
    rules: Rules,
    user_value_field: str,
) -> Evidence:
    """Count the logons by day, host and user, under the names that the rules compare (rules 1.3 to 1.6).

    Args:
        counts: Rows of `logon_counts`.
        hosts: Rows of `inventory_hosts`.
        users: Rows of `inventory_users`.
        rules: The instance's rules; what they exclude is left out.
        user_value_field: Name of the field that `user_value` of the users holds.
    """
    pairs = counts.select(SPELLINGS).unique().collect(engine="streaming")
    names = normalised_names(pairs, rules=rules)
    # Host names of which excluded users alone have logons are none of the evidence.
    with_logons = (
        names.hosts.lazy()
        .join(names.of(pairs.lazy()), on="hostname", how="semi")
        .select("document_hostname", pl.col("hostname").cast(pl.String))
        .collect()
        .lazy()
    )
    short = rules.short_hostnames
    subjects = subjects_of(with_logons.select("hostname").unique(), hosts.lazy(), short=short).collect()
    of_subjects = subjects.lazy().explode("hostnames").select("subject", hostname="hostnames")
    spellings = with_logons.select(full=pl.concat_list("document_hostname"))
    barred = of_subjects.join(
        left_out(spellings, hosts.lazy(), short=short, exclude_hosts=rules.exclude_hosts), on="hostname"
    ).collect()["subject"]
    known = pl.col("hostname").cast(names.hosts.schema["hostname"], strict=False)
    user = pl.col("username").to_physical().alias("user")
    days = (
        names.of(counts)
        .join(of_subjects.with_columns(known), on="hostname")
        .with_columns(user)
        .pipe(logons_by_day, "subject", "user", rules=rules)
        .collect(engine="streaming")
    )
    usernames = names.users.select(user, pl.col("username").cast(pl.String)).unique()
    matches = username_matches(usernames, users, user_value_field=user_value_field)
    resolved = candidates(matches.lazy()).select("username", "resolved_owner").collect()
    return Evidence(
        days,
        subjects.select(
            "subject",
            "host_id",
            "hostname",
            "owner_ids",
            eligible=pl.col("problem").is_null()
            & pl.col("hostname").is_not_null()
            & ~pl.col("subject").is_in(barred.implode()),
        ),
        usernames.join(resolved, on="username", how="left").sort("user"),
        rules,
    )


def user_totals(evidence: Evidence, window: Window) -> pl.DataFrame:
    """Add up the logons of each user on each host over a window: as `logons_by_user`, by subject and user."""
    in_window = pl.col("day").is_between(window.first, window.last)
    return evidence.days.lazy().filter(in_window).pipe(logons_by_user, "subject", "user").collect()


def leaders(totals: pl.DataFrame) -> pl.DataFrame:
    """Who leads the logons of each host (rules 1.2).

    Args:
        totals: As `user_totals` gives them.

    Returns:
        subject; the leader's user, events, weight, active_days; total_events, total_weight, user_count, tied
        (whether another user has the same weight); hosts without logons are left out.
    """
    return (
        totals.lazy()
        .sort("subject", "weight", "user", descending=[False, True, False])
        .group_by("subject", maintain_order=True)
        .agg(
            pl.first("user", "active_days"),
            events=pl.first("events"),
            total_events=pl.sum("events"),
            weight=pl.first("weight"),
            total_weight=pl.sum("weight"),
            user_count=pl.len().cast(pl.Int64),
            tied=(pl.col("weight").get(1, null_on_oob=True) == pl.first("weight")).fill_null(value=False),
        )
        .collect(engine="streaming")
    )


def share_band() -> pl.Expr:
    """The band of the leader's share; of rows with weight, total_weight and user_count."""
    bands = [(name, ~exceeds_threshold(upper)) for name, upper in SHARE_BANDS.items()]
    return first_that_holds([(ONLY_USER, pl.col("user_count") == 1), *bands]).alias("share_band")


def window_before(last: date, days: int) -> Window:
    """The window of so many days that ends with a day."""
    return Window(last - timedelta(days=days - 1), last)
