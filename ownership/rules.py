"""The rules by which the evidence names an owner, and their inverse: what a user lacks to be named.

Who is counted, and what follows from a name, is decided in the other modules of this package.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

EvidenceMetric = Literal["events", "days"]
AccountKind = Literal["person", "administrator", "service", "computer", "built_in", "unknown"]
HostKind = Literal["personal", "shared", "kiosk", "server", "collector", "unknown"]


@dataclass(frozen=True)
class Rules:
    """The settings that a decision depends on, with their defaults (rules 1.2, 1.4, 1.6 to 1.8)."""

    share_threshold_percent: int = 60
    hostname_match: Literal["exact", "short"] = "exact"
    exclude_users: tuple[str, ...] = ()
    exclude_hosts: tuple[str, ...] = ()
    min_events: int = 1
    min_active_days: int = 1
    evidence_metric: EvidenceMetric = "events"
    logon_type_weights: Mapping[str, int] = field(default_factory=dict)
    skip_account_kinds: tuple[AccountKind, ...] = ()
    skip_host_kinds: tuple[HostKind, ...] = ()

    @property
    def short_hostnames(self) -> bool:
        """Whether host names are compared without their domain part."""
        return self.hostname_match == "short"


NAMING = ("single_user", "majority")
"""The evidence that names an owner; every other value leaves the host as it is (rules 1.2)."""


def first_that_holds(cases: Iterable[tuple[str, pl.Expr]]) -> pl.Expr:
    """Name of the first case that holds; null when none does."""
    return pl.coalesce(pl.when(holds).then(pl.lit(name)) for name, holds in cases)


def strength_of_leader(rules: Rules) -> dict[str, pl.Expr]:
    """What the counts of a host say about the user with most events; the first that holds (rules 1.2, 1.6).

    Of rows with total_events, total_weight, user_count, and weight and active_days of that user. Whole
    numbers are compared, so that a share of exactly the threshold is no majority on any machine.
    """
    return {
        "no_logons": pl.col("total_events") == 0,
        "too_few_events": ~enough(rules),
        "single_user": pl.col("user_count") == 1,
        "majority": exceeds_threshold(rules.share_threshold_percent),
        "no_majority": pl.lit(value=True),
    }


def names_somebody(rules: Rules) -> pl.Expr:
    """Whether that evidence is one of `NAMING`: quicker where many rules are tried."""
    return (pl.col("total_events") > 0) & enough(rules) & leads(rules)


def leads(rules: Rules) -> pl.Expr:
    """Whether that user is the only one, or has more than the threshold."""
    return (pl.col("user_count") == 1) | exceeds_threshold(rules.share_threshold_percent)


def enough(rules: Rules) -> pl.Expr:
    """Whether the host has enough events, and that user enough days with a logon."""
    return (pl.col("total_events") >= rules.min_events) & (days_needed(rules) == 0)


def exceeds_threshold(
    threshold_percent: int, *, part: str = "weight", whole: str = "total_weight"
) -> pl.Expr:
    """Whether a part is more than the threshold of the whole."""
    return 100 * pl.col(part) > threshold_percent * pl.col(whole)


def weight(rules: Rules) -> pl.Expr:
    """What a user's logons on a host count for, of rows with events, days and `summed` (rules 1.7).

    The days are active_days and, where kinds of logon have weights, weighted_days.
    """
    plain = {"events": "events", "days": "active_days"}
    by_kind = {"events": "weighted", "days": "weighted_days"}
    return pl.col((by_kind if rules.logon_type_weights else plain)[rules.evidence_metric])


def summed(rules: Rules) -> dict[str, pl.Expr]:
    """What `weight` needs beside events and days, to be added up over the rows of a user on a host."""
    return {"weighted": pl.sum("weighted")} if rules.logon_type_weights else {}


def weighed(rules: Rules) -> dict[str, pl.Expr]:
    """What the kinds of logon make of rows of `logon_counts` (rules 1.7); nothing where none has a weight.

    `weighted` are the events times the weight of their kind; `greatest` is that weight.
    """
    if not rules.logon_type_weights:
        return {}
    kind, weights = pl.col("document_logon_type"), rules.logon_type_weights
    of_one = kind.replace_strict(weights, default=1, return_dtype=pl.Int64).fill_null(1)
    return {"weighted": pl.col("events") * of_one, "greatest": of_one}


def of_a_day(rules: Rules) -> list[pl.Expr]:
    """How rows with events and `weighed` become one for each day of a user on a host."""
    by_kind = [pl.sum("weighted"), pl.max("greatest")] if rules.logon_type_weights else []
    return [pl.sum("events"), *by_kind]


def events_needed(rules: Rules) -> pl.Expr:
    """Count the further logon events with which a user would be named: the inverse of the above.

    Of rows with weight and active_days (of the user on the host, at least 0), total_weight and total_events
    (of all users there): the smallest number of further events, nobody else's, that make the user the only
    one or give it more than the threshold, and the host enough; 0 where that is so already. As many of them
    as `days_needed` are on a further day each. Where days count, each event is one on a further day. Where
    kinds of logon have weights, each is of a kind that has none.
    """
    own, total, events = (pl.col(name).cast(pl.Int64) for name in ("weight", "total_weight", "total_events"))
    threshold = rules.share_threshold_percent
    to_begin = max(rules.min_events, 1) - events
    # The smallest k with 100 * (own + k) > threshold * (total + k).
    to_lead = (threshold * total - 100 * own) // (100 - threshold) + 1
    to_lead = pl.when(own == total).then(0).otherwise(to_lead)
    return pl.max_horizontal(to_lead, to_begin, days_needed(rules), 0)


def days_needed(rules: Rules) -> pl.Expr:
    """Count the further days with a logon that `min_active_days` asks of a user; 0 where there are enough.

    Of rows with active_days; where they are not known (null), there are enough.
    """
    return (rules.min_active_days - pl.col("active_days").fill_null(rules.min_active_days)).clip(0)
