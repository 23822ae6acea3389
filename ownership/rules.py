"""The rules by which the evidence names an owner, and their inverse: what a user lacks to be named."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

import polars as pl

from ownership.names import fits_any, normalise_name

EvidenceMetric = Literal["events", "days"]
AccountKind = Literal["person", "administrator", "service", "computer", "built_in", "unknown"]
HostKind = Literal["personal", "shared", "kiosk", "server", "collector", "unknown"]


@dataclass(frozen=True)
class Rules:
    """The settings that a decision depends on, with their defaults (rules 1)."""

    share_threshold_percent: int = 60
    hostname_match: Literal["exact", "short"] = "exact"
    exclude_users: tuple[str, ...] = ()
    exclude_hosts: tuple[str, ...] = ()
    min_events: int = 1
    min_active_days: int = 1
    evidence_metric: EvidenceMetric = "events"
    primary_devices: int | None = None
    logon_type_weights: Mapping[str, int] = field(default_factory=dict, hash=False)
    skip_account_kinds: tuple[AccountKind, ...] = ()
    skip_host_kinds: tuple[HostKind, ...] = ()
    domains: tuple[str, ...] = ()
    unite_accounts: bool = False
    max_idle_days: int | None = None
    min_stable_days: int | None = None
    min_confidence: int | None = None
    exclude_assets: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    exclude_user_assets: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    @property
    def short_hostnames(self) -> bool:
        """Return whether host names are compared without their domain part."""
        return self.hostname_match == "short"

    def as_json(self) -> str:
        """Return the settings as the table `runs` keeps them."""
        return json.dumps(asdict(self))

    @property
    def of_evidence(self) -> Self:
        """Return the settings that a confidence is learnt for: all but `min_confidence` (rules 9.8).

        Those that do the same are equal: the order of values does not matter.
        """
        values = _with_lists(asdict(self), lambda each: tuple(sorted(each)))
        return type(self)(**values | {"min_confidence": None})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the settings that `as_json` wrote."""
        return cls(**_with_lists(json.loads(text), tuple))


def _with_lists(value: Any, make: Callable[[Sequence[str]], tuple[str, ...]]) -> Any:
    """Return settings with each list of values made anew."""
    if isinstance(value, Mapping):
        return {name: _with_lists(each, make) for name, each in value.items()}
    return make(value) if isinstance(value, list | tuple) else value


DAYS_AFTER_SKIPPED = 3
"""Active days of the primary user where an account excluded for its kind had most logons (rules 1.8)."""

NAMING = ("single_user", "majority")
"""The evidence that names an owner; every other value leaves the host as it is (rules 1.2)."""


def first_that_holds(cases: Iterable[tuple[str, pl.Expr]]) -> pl.Expr:
    """Return the name of the first case that holds; null when none does."""
    return pl.coalesce(pl.when(holds).then(pl.lit(name)) for name, holds in cases)


def evidence_of_host(rules: Rules) -> dict[str, pl.Expr]:
    """Return the first evidence value that applies to rows of `evidence.primary_users` (rules 2.3).

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
        "not_stable": pl.col("stable_days") < pl.lit(rules.min_stable_days, pl.Int64),
        "answered_no": pl.col("answered_no"),
        "low_confidence": 100 * pl.col("confidence").fill_null(0) < pl.lit(rules.min_confidence, pl.Int64),
        "single_user": ~several,
        "majority": several,
    }


def excluding_field(setting: str, patterns: Mapping[str, Sequence[str]]) -> pl.Expr:
    """Return the setting, field and pattern that exclude an asset by what the inventory lists.

    All patterns are tried together, and then one by one on the values that fit: thousands may be given.
    """
    value = pl.col("value")

    def excluding(listed: pl.Series) -> pl.Series:
        values, reasons = listed.explode().unique().to_frame("value"), dict[str, str]()
        for name, of_field in patterns.items():
            text = normalise_name(value.str.strip_prefix(f"{name}: "))
            fitting = values.filter(value.str.starts_with(f"{name}: "), fits_any(text, of_field))
            for one in of_field:
                found = fitting.filter(fits_any(text, [one]))["value"]
                reasons = dict.fromkeys(found, f"{setting}: {name}: {one}") | reasons
        reason = pl.element().replace_strict(reasons, default=None, return_dtype=pl.String)
        return listed.list.eval(reason.drop_nulls()).list.first()

    return pl.col("listed_values").map_batches(excluding, return_dtype=pl.String, is_elementwise=True)


def names_owner(rules: Rules) -> pl.Expr:
    """Return whether the evidence names an owner."""
    # Answers instead of names: a tenth of the time, and the back-test asks for hundreds of rules.
    return pl.coalesce(
        pl.when(holds).then(pl.lit(name in NAMING)) for name, holds in evidence_of_host(rules).items()
    )


def exceeds_threshold(threshold_percent: int) -> pl.Expr:
    """Return whether weight is above the threshold of total_weight.

    Whole numbers are compared, so that a share of exactly the threshold is not a majority on any machine.
    """
    return 100 * pl.col("weight") > threshold_percent * pl.col("total_weight")


MAX_EVENTS_A_DAY = 10_000_000_000
"""Most logon events of a day: 3,660 such days, with weights of 1,000 and times 100, fit in 64 bits."""


def day_weights(rules: Rules) -> dict[EvidenceMetric, pl.Expr]:
    """Return what a user's logons on a host count for on one day (rules 1.7), from `logon_counts`."""
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
    to_be_named = (threshold * total - 100 * own) // (100 - threshold) + 1
    to_be_named = pl.when(own == total).then(0).otherwise(to_be_named)
    return pl.max_horizontal(to_be_named, to_begin, days_needed(rules), 0)


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
