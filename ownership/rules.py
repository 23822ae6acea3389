"""The rules by which the evidence names an owner, and their inverse: what a user lacks to be named."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal, Self

import polars as pl
from annotated_types import Ge, Le, Len

EvidenceMetric = Literal["events", "days"]
AccountKind = Literal["person", "administrator", "service", "computer", "built_in", "unknown"]
HostKind = Literal["personal", "shared", "kiosk", "server", "collector", "unknown"]


Pattern = Annotated[str, Len(1, 1_000)]


@dataclass(frozen=True)
class Rules:
    """The settings that a decision depends on, with their defaults and bounds (rules 1.2, 1.4, 1.6 to 1.10).

    They are the section `rules` of the instance file, and their descriptions those of its keys.
    """

    share_threshold_percent: Annotated[int, Ge(50), Le(99)] = 60
    """the primary user of several needs more than this percentage"""
    hostname_match: Literal["exact", "short"] = "exact"
    """compare whole names, or their first label"""
    exclude_users: tuple[Pattern, ...] = ()
    """user names that are not people; * and ? are wildcards; such as `['*$', svc_*]`"""
    exclude_hosts: tuple[Pattern, ...] = ()
    """host names that get no owner; * and ? are wildcards"""
    min_events: Annotated[int, Ge(1)] = 1
    """fewest logon events of a host that count as evidence"""
    min_active_days: Annotated[int, Ge(1), Le(3660)] = 1
    """fewest days with a logon of the primary user"""
    evidence_metric: EvidenceMetric = "events"
    """what counts when users are compared: logon events, or days with one"""
    primary_devices: Annotated[int | None, Ge(1), Le(100)] = None
    """hosts of a user that count, those with most days with a logon; null = all"""
    logon_type_weights: Mapping[Pattern, Annotated[int, Ge(1), Le(1_000)]] = field(
        default_factory=dict, hash=False
    )
    """what a logon counts for (1 to 1000) by its value in `logon_type_field`; others count 1; such as
    `{2: 10, 7: 5, 11: 10}`"""
    skip_account_kinds: tuple[AccountKind, ...] = ()
    """kinds of accounts whose logons are excluded; such as `[service, computer]`"""
    skip_host_kinds: tuple[HostKind, ...] = ()
    """kinds of hosts that get no owner; such as `[kiosk, server]`"""
    domains: tuple[Pattern, ...] = ()
    """domains and UPN suffixes whose accounts may stand for user assets; empty = all; such as
    `[CORP, corp.example]`"""
    unite_accounts: bool = False
    """count accounts of a host that stand for the same user asset as one user"""
    max_idle_days: Annotated[int | None, Ge(1), Le(3660)] = None
    """the primary user must have logged on within so many last days of the window; null = off"""
    min_confidence: Annotated[int | None, Ge(50), Le(99)] = None
    """of so many of 100 such owners it must be known that they are right; needs an answered audit
    (`tune --audit`); null = off"""
    exclude_assets: Mapping[Pattern, tuple[Pattern, ...]] = field(default_factory=dict, hash=False)
    """host assets that get no owner, by a field as the inventory lists it; * and ? are wildcards; such as
    `{group: [kiosks, lab*]}`"""

    @property
    def short_hostnames(self) -> bool:
        """Whether host names are compared without their domain part."""
        return self.hostname_match == "short"

    def as_json(self) -> str:
        """The settings as the table `runs` keeps them."""
        return json.dumps(asdict(self))

    @property
    def of_evidence(self) -> Self:
        """The settings that a confidence is learnt for: all but how much of it is asked (rules 9.8)."""
        return replace(self, min_confidence=None)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The settings that `as_json` wrote."""
        values: dict[str, Any] = json.loads(text)
        values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        by_field = values.get("exclude_assets", {})  # earlier versions have none
        values["exclude_assets"] = {field: tuple(patterns) for field, patterns in by_field.items()}
        return cls(**values)


DAYS_AFTER_SKIPPED = 3
"""Active days of the primary user where an account excluded for its kind had most logons (rules 1.8)."""

NAMING = ("single_user", "majority")
"""The evidence that names an owner; every other value leaves the host as it is (rules 1.2)."""


def first_that_holds(cases: Iterable[tuple[str, pl.Expr]]) -> pl.Expr:
    """Name of the first case that holds; null when none does."""
    return pl.coalesce(pl.when(holds).then(pl.lit(name)) for name, holds in cases)


def evidence_of_host(rules: Rules) -> dict[str, pl.Expr]:
    """What the logons of a host say, the first that holds, of rows of `evidence.primary_users` (rules 2.3).

    docs/architecture.md says how to add a value.
    """
    several = pl.col("user_count") > 1
    return {
        "unreadable_asset": pl.col("problem").is_not_null(),
        "no_hostname": pl.col("hostname").is_null(),
        "excluded_host": pl.col("excluded_by").is_not_null(),
        "hostname_collision": pl.col("collides"),
        "no_logons": pl.col("total_events") == 0,
        "too_few_events": (pl.col("total_events") < rules.min_events) | (days_needed(rules) > 0),
        "no_majority": several & ~exceeds_threshold(rules.share_threshold_percent),
        "not_primary_device": pl.col("primary_rank") > pl.lit(rules.primary_devices, pl.Int64),
        "idle_user": pl.col("idle_days") >= pl.lit(rules.max_idle_days, pl.Int64),
        "low_confidence": 100 * pl.col("confidence") < pl.lit(rules.min_confidence, pl.Int64),
        "single_user": ~several,
        "majority": several,
    }


def names_owner(rules: Rules) -> pl.Expr:
    """Whether that evidence names an owner."""
    # Answers instead of names: a tenth of the time, and the back-test asks for hundreds of rules.
    return pl.coalesce(
        pl.when(holds).then(pl.lit(name in NAMING)) for name, holds in evidence_of_host(rules).items()
    )


def exceeds_threshold(threshold_percent: int) -> pl.Expr:
    """Whether weight is more than the threshold of total_weight.

    Whole numbers are compared, so that a share of exactly the threshold is not a majority on any machine.
    """
    return 100 * pl.col("weight") > threshold_percent * pl.col("total_weight")


MAX_EVENTS_A_DAY = 10_000_000_000
"""Most logon events of a day: 3,660 such days, with weights of 1,000 and times 100, fit in 64 bits."""


def day_weights(rules: Rules) -> dict[EvidenceMetric, pl.Expr]:
    """What a user's logons on a host on one day count for, by metric (rules 1.7), from `logon_counts`."""
    weights = rules.logon_type_weights
    of_kind = pl.col("document_logon_type").replace_strict(weights, default=1, return_dtype=pl.Int64)
    one = of_kind.fill_null(1) if weights else pl.lit(1, pl.Int64)
    return {"events": (pl.col("events") * one).sum(), "days": one.max()}


def events_needed(rules: Rules) -> pl.Expr:
    """Count the further logon events with which a user would be named: the inverse of `evidence_of_host`.

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
    to_win = (threshold * total - 100 * own) // (100 - threshold) + 1
    to_win = pl.when(own == total).then(0).otherwise(to_win)
    return pl.max_horizontal(to_win, to_begin, days_needed(rules), 0)


def days_needed(rules: Rules) -> pl.Expr:
    """Count the further days with a logon that `min_active_days` asks of a user; 0 where there are enough.

    Of rows with active_days (null, not known, is enough) and, where the rules exclude kinds of accounts,
    skipped_username.
    """
    least = pl.lit(rules.min_active_days)
    if rules.skip_account_kinds:
        asked = max(rules.min_active_days, DAYS_AFTER_SKIPPED)
        least = pl.when(pl.col("skipped_username").is_null()).then(least).otherwise(asked)
    return (least - pl.col("active_days").fill_null(least)).clip(0)


def further_days_needed(rules: Rules) -> pl.Expr:
    """Count the further days on which `events_needed` have to be; of the same rows."""
    if rules.evidence_metric != "days":
        return days_needed(rules)
    # Each event that makes somebody the primary user is on a further day.
    return pl.max_horizontal(days_needed(rules), events_needed(replace(rules, min_events=1)))
