"""What other settings would have led to, on the evidence that is stored: counted for many at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import polars as pl

from ownership.declaration import polars_schema
from ownership.rules import EvidenceMetric, Rules, names_owner
from ownership.tables import ThresholdBacktest
from ownership.tuning.accuracy import CHARACTERISTICS, Compared
from ownership.tuning.claims import effective, unlike, wilson, wrong_among

THRESHOLDS = range(50, 100, 5)
WINDOWS = (30, 60)
MIN_ACTIVE_DAYS = (1, 3, 5)
METRICS: tuple[EvidenceMetric, ...] = ("events", "days")
PRIMARY_DEVICES = (None, 1, 2)

MIN_COMPARED = 30
"""Hosts that a measure must have compared before owners are said to be wrong by it (rules 9.4)."""

KEY = ("window_days", "threshold_percent", "min_active_days", "evidence_metric", "primary_devices")
_WORDS = {
    "share_band": "the leader's share",
    "active_days_band": "active days",
    "kind": "kind of host",
    "led_band": "number of hosts of the leader",
}


@dataclass(frozen=True)
class Grid:
    """Which settings are tried: each with each."""

    windows: Sequence[int]
    thresholds: Sequence[int]
    min_active_days: Sequence[int]
    metrics: Sequence[EvidenceMetric]
    primary_devices: Sequence[int | None]


def grid(rules: Rules, *, lookback_days: int, stored_days: int) -> Grid:
    """The usual settings and those of the instance; no lower threshold, no window longer than stored."""
    own = rules.share_threshold_percent
    return Grid(
        sorted({days for days in WINDOWS if days <= stored_days} | {lookback_days}),
        sorted({own} | {percent for percent in THRESHOLDS if percent > own}),
        sorted({*MIN_ACTIVE_DAYS, rules.min_active_days}),
        METRICS,
        list(dict.fromkeys([*PRIMARY_DEVICES, rules.primary_devices])),
    )


def own_settings(rules: Rules, *, lookback_days: int) -> Grid:
    """The settings of the instance alone."""
    return Grid(
        [lookback_days],
        [rules.share_threshold_percent],
        [rules.min_active_days],
        [rules.evidence_metric],
        [rules.primary_devices],
    )


def threshold_backtest(
    decided: Mapping[tuple[int, EvidenceMetric], Compared], *, rules: Rules, tried: Grid
) -> pl.DataFrame:
    """Count for each combination of settings what it would have led to, and how often it would be right.

    `decided` is what was compared, by window (days) and metric. Rows of `threshold_backtest`, sorted by key.
    """
    schema = polars_schema(ThresholdBacktest)
    rows = [
        {"window_days": days, **_settings(chosen), **_line(both, chosen)}
        for (days, metric), both in decided.items()
        for chosen in _rules_tried(rules, tried, metric)
    ]
    return pl.DataFrame(rows, schema=schema).sort(*KEY, nulls_last=False)


def _rules_tried(rules: Rules, tried: Grid, metric: EvidenceMetric) -> list[Rules]:
    return [
        replace(
            rules,
            share_threshold_percent=threshold,
            min_active_days=days,
            evidence_metric=metric,
            primary_devices=primary,
        )
        for threshold, days, primary in product(
            tried.thresholds, tried.min_active_days, tried.primary_devices
        )
    ]


def _settings(rules: Rules) -> dict[str, Any]:
    return {
        "threshold_percent": rules.share_threshold_percent,
        "min_active_days": rules.min_active_days,
        "evidence_metric": rules.evidence_metric,
        "primary_devices": rules.primary_devices,
    }


def _line(both: Compared, rules: Rules) -> dict[str, Any]:
    """What one setting leads to, as the columns of `threshold_backtest` beside its key."""
    named, before = both.now.filter(names_owner(rules)), both.before.filter(names_owner(rules))
    actions = named.filter(match="matched")["action"]
    values: dict[str, Any] = {
        "hosts_with_evidence": both.now.height,
        "resolved": named.height,
        "matched": actions.len(),
        "to_write": (actions == "write").sum(),
        "agree": (actions == "agree").sum(),
        "conflict": (actions == "conflict").sum(),
    }
    to_write = named.filter(action="write")
    people, future = named.drop_nulls("right_by_people"), before.drop_nulls("right_afterwards")
    for measure, frame, right in (
        ("people", people, "right_by_people"),
        ("future", future, "right_afterwards"),
    ):
        squares = frame.group_by("username").len().select((pl.col("len") ** 2).sum()).item()
        sums = frame.select(right=pl.col(right).sum(), hosts=pl.len(), squares=pl.lit(squares))
        share = wilson(pl.col("right"), pl.col("hosts"), effective(pl.col("squares"), pl.col("hosts")))
        precision, low, high = sums.select(precision=share[0], low=share[1], high=share[2]).row(0)
        values |= {f"{measure}_hosts": frame.height, f"{measure}_precision": precision}
        values |= {f"{measure}_low": low, f"{measure}_high": high}
    return values | _claim(to_write, people, future)


def _claim(to_write: pl.DataFrame, people: pl.DataFrame, future: pl.DataFrame) -> dict[str, Any]:
    """How many of the owners to write are expected to be wrong, or why that cannot be said (rules 9.4)."""
    reason = None
    if people.height < MIN_COMPARED:
        reason = f"fewer than {MIN_COMPARED} hosts have an owner whom somebody set and the logons name"
    elif differing := [_WORDS[name] for name in CHARACTERISTICS if _differ(people, to_write, name)]:
        reason = f"hosts to write are unlike those compared: {', '.join(differing)}"
    if reason is None:
        estimate, low, high = wrong_among(_bands(people, "right_by_people", to_write))
        found: dict[str, Any] = {"wrong_measure": "people", "wrong": estimate, "wrong_high": high}
        return {**found, "wrong_low": low, "no_claim": None}
    if future.height < MIN_COMPARED:
        return {"no_claim": reason}
    _, low, _ = wrong_among(_bands(future, "right_afterwards", to_write))
    return {"wrong_measure": "future", "wrong_low": low, "no_claim": reason}


def _tries(frame: pl.DataFrame, by: str) -> pl.DataFrame:
    """The hosts of each value of a characteristic, and their effective number."""
    counted = frame.group_by(by, "username").agg(hosts=pl.len()).group_by(by)
    sums = counted.agg(pl.sum("hosts"), squares=(pl.col("hosts") ** 2).sum())
    return sums.select(by, "hosts", tries=effective(pl.col("squares"), pl.col("hosts")))


def _bands(
    frame: pl.DataFrame, right: str, to_write: pl.DataFrame
) -> list[tuple[float, float, float, float, float]]:
    """For each share band the hosts compared, wrong ones and effective number; to write, effective number."""
    wrong = frame.group_by("share_band").agg(wrong=(~pl.col(right)).sum())
    return (
        _tries(frame, "share_band")
        .join(wrong, on="share_band")
        .join(_tries(to_write, "share_band"), on="share_band", how="full", coalesce=True, suffix="_to_write")
        .fill_null(0)
        .sort("share_band")
        .select("hosts", "wrong", "tries", "hosts_to_write", "tries_to_write")
        .rows()
    )


def _differ(compared: pl.DataFrame, to_write: pl.DataFrame, name: str) -> bool:
    """Whether hosts to write are unlike those compared in a characteristic."""
    both = (
        _tries(compared, name)
        .join(_tries(to_write, name), on=name, how="full", coalesce=True, suffix="_to_write")
        .fill_null(0)
    )
    hosts, tries = both.select(
        pl.sum("hosts") + pl.sum("hosts_to_write"), tries=pl.sum("tries") + pl.sum("tries_to_write")
    ).row(0)
    scale = tries / hosts if hosts else 1.0
    return unlike(both["hosts"].to_list(), both["hosts_to_write"].to_list(), scale=scale)
