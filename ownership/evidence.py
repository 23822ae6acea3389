"""Logon counts by day with names as numbers, so that many windows and rules can be tried on one reading."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from types import MappingProxyType

import polars as pl

from ownership.leaders import left_out, subjects_of
from ownership.matching import candidates, username_matches
from ownership.rules import (
    Rules,
    exceeds_threshold,
    first_that_holds,
    of_a_day,
    summed,
    weighed,
    weight,
)
from ownership.shares import numbered_hosts, numbered_users
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
        days: day, subject, user, events; one row for each day, host and user with a logon. Where kinds of
            logon have weights, also weighted and greatest (`ownership.rules.weighed`).
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
    columns = ("document_hostname", "document_username")
    spelled = (
        counts.select(*columns, "day", "events", **weighed(rules))
        .with_columns(pl.col(*columns).cast(pl.Categorical))
        .collect(engine="streaming")
    )
    host_numbers = numbered_hosts(spelled["document_hostname"].unique(), rules=rules)
    user_numbers = numbered_users(spelled["document_username"].unique(), rules=rules)
    by_name = (
        spelled.lazy()
        .join(host_numbers.lazy().select("document_hostname", "host"), on="document_hostname")
        .join(user_numbers.lazy().select("document_username", "user"), on="document_username")
        .drop("document_hostname", "document_username")
        .collect(engine="streaming")
        .lazy()
    )
    # Host names of which excluded users alone have logons are none of the evidence.
    with_logons = host_numbers.lazy().join(by_name.select("host").unique(), on="host", how="semi")
    hostnames = with_logons.select("hostname", "host").unique()
    subjects = subjects_of(hostnames.select("hostname"), hosts.lazy(), short=rules.short_hostnames).collect()
    names = subjects.lazy().explode("hostnames").select("subject", hostname="hostnames")
    spellings = with_logons.select(full=pl.concat_list(pl.col("document_hostname").cast(pl.String)))
    barred = names.join(
        left_out(spellings, hosts.lazy(), short=rules.short_hostnames, exclude_hosts=rules.exclude_hosts),
        on="hostname",
    ).collect()["subject"]
    days = (
        by_name.join(names.join(hostnames, on="hostname").select("subject", "host"), on="host")
        .group_by("day", "subject", "user")
        .agg(of_a_day(rules))
        .collect(engine="streaming")
    )
    matches = username_matches(user_numbers, users, user_value_field=user_value_field)
    resolved = candidates(matches.lazy()).select("username", "resolved_owner")
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
        user_numbers.lazy()
        .select("user", "username")
        .unique()
        .join(resolved, on="username", how="left")
        .sort("user")
        .collect(),
        rules,
    )


def user_totals(evidence: Evidence, window: Window) -> pl.DataFrame:
    """What the logons of each user on each host add up to over a window (rules 1.7).

    Returns:
        subject, user, events, active_days, weight.
    """
    rules = evidence.rules
    return (
        evidence.days.lazy()
        .filter(pl.col("day").is_between(window.first, window.last))
        .group_by("subject", "user")
        .agg(
            pl.sum("events"),
            active_days=pl.len().cast(pl.Int64),
            **({"weighted_days": pl.sum("greatest")} if rules.logon_type_weights else {}),
            **summed(rules),
        )
        .with_columns(weight=weight(rules))
        .collect(engine="streaming")
    )


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
