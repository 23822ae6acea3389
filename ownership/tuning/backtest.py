"""What other settings would have led to, on the evidence that is stored: counted for many at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import polars as pl

from ownership.declaration import polars_schema
from ownership.rules import Rules, names_owner
from ownership.tables import ThresholdBacktest
from ownership.tuning.accuracy import Judged, wilson

THRESHOLDS = range(50, 100, 5)
WINDOWS = (7, 14, 30, 60, 90)
MIN_EVENTS = (1, 3, 10)
MIN_ACTIVE_DAYS = (1, 3, 5)

MIN_COMPARED = 30
"""Hosts that a measure must have compared before owners are said to be wrong by it (rules 9.3)."""


@dataclass(frozen=True)
class Grid:
    """Which settings are tried: each with each."""

    windows: Sequence[int]
    thresholds: Sequence[int]
    min_events: Sequence[int]
    min_active_days: Sequence[int]


def grid(rules: Rules, *, lookback_days: int, stored_days: int) -> Grid:
    """The usual settings and those of the instance; windows only as long as there are stored days."""
    windows = {days for days in WINDOWS if days <= stored_days} | {lookback_days}
    return Grid(
        sorted(windows),
        sorted({*THRESHOLDS, rules.share_threshold_percent}),
        sorted({*MIN_EVENTS, rules.min_events}),
        sorted({*MIN_ACTIVE_DAYS, rules.min_active_days}),
    )


def threshold_backtest(windows: Mapping[int, Judged], *, rules: Rules, tried: Grid) -> pl.DataFrame:
    """Count for each combination of settings what it would have led to, and how often it would be right.

    Args:
        windows: What is decided on windows of each length (days) that is tried.
        rules: The instance's other rules.
        tried: The settings.

    Returns:
        Rows of `threshold_backtest`, sorted by its key.
    """
    return (
        pl.concat(
            _lines(windows[days], rules, tried).with_columns(window_days=pl.lit(days, pl.Int64))
            for days in tried.windows
        )
        .pipe(_with_precision)
        .select(*polars_schema(ThresholdBacktest))
        .sort("window_days", "threshold_percent", "min_events", "min_active_days")
    )


def _lines(judged: Judged, rules: Rules, tried: Grid) -> pl.DataFrame:
    """Count the hosts of one window for each setting and share band, and add the bands up."""
    counted = {
        "resolved": pl.lit(value=True),
        **{follows: pl.col(follows) for follows in ("matched", "to_write", "agree", "conflict")},
        "people_hosts": pl.col("right_by_people").is_not_null(),
        "people_right": pl.col("right_by_people").fill_null(value=False),
    }
    compared = {
        "future_hosts": pl.col("right_afterwards").is_not_null(),
        "future_right": pl.col("right_afterwards").fill_null(value=False),
    }
    lines = pl.DataFrame(
        product(tried.thresholds, tried.min_events, tried.min_active_days),
        schema=dict.fromkeys(("threshold_percent", "min_events", "min_active_days"), pl.Int64),
        orient="row",
    ).with_row_index("line")
    chosen = [
        replace(rules, share_threshold_percent=threshold, min_events=events, min_active_days=days)
        for _, threshold, events, days in lines.iter_rows()
    ]
    by_band = _by_band(judged.now, chosen, counted).join(
        _by_band(judged.before, chosen, compared), on=("line", "share_band"), how="full", coalesce=True
    )
    by_band = by_band.with_columns(pl.col(*counted, *compared).fill_null(0))
    return (
        lines.join(_wrong(by_band), on="line", how="left")
        .join(by_band.group_by("line").agg(pl.sum(*counted, *compared)), on="line", how="left")
        .with_columns(
            pl.col(*counted, *compared).fill_null(0), hosts_with_evidence=pl.lit(judged.now.height, pl.Int64)
        )
        .drop("line")
    )


def _by_band(frame: pl.DataFrame, chosen: Sequence[Rules], counted: Mapping[str, pl.Expr]) -> pl.DataFrame:
    """Count, by line and share band, the hosts with an owner named for which each expression holds."""
    hosts = frame.lazy().filter("eligible").with_columns(**counted).collect().lazy()
    return pl.concat(
        pl.collect_all(
            hosts.filter(names_owner(rules))
            .group_by(pl.lit(line, pl.UInt32).alias("line"), "share_band")
            .agg(pl.sum(*counted).cast(pl.Int64))
            for line, rules in enumerate(chosen)
        )
    )


def _wrong(by_band: pl.DataFrame) -> pl.DataFrame:
    """How many of the owners to write are expected to be wrong, within the share band of each (rules 9.3).

    From `people` where it compared enough hosts, otherwise from `future`, otherwise nothing is claimed. A
    band in which nothing was compared is taken to be like all others.

    Returns:
        line, wrong_measure, wrong, wrong_low, wrong_high; lines without a claim are left out.
    """
    parts = []
    for measure in ("people", "future"):
        compared, right = pl.col(f"{measure}_hosts"), pl.col(f"{measure}_right")
        everywhere = wilson(right.sum().over("line"), compared.sum().over("line"))
        in_band = wilson(right, compared)
        precision, low, high = (pl.coalesce(pair) for pair in zip(in_band, everywhere, strict=True))
        to_write = pl.col("to_write")
        parts.append(
            by_band.with_columns(
                compared=compared.sum().over("line"),
                wrong=to_write * (1 - precision),
                wrong_low=to_write * (1 - high),
                wrong_high=to_write * (1 - low),
            )
            .filter(pl.col("compared") >= MIN_COMPARED)
            .group_by("line")
            .agg(pl.sum("wrong", "wrong_low", "wrong_high"), wrong_measure=pl.lit(measure))
        )
    return pl.concat(parts).unique("line", keep="first", maintain_order=True)


def _with_precision(lines: pl.DataFrame) -> pl.DataFrame:
    for measure in ("people", "future"):
        precision, low, high = wilson(pl.col(f"{measure}_right"), pl.col(f"{measure}_hosts"))
        lines = lines.with_columns(
            precision.alias(f"{measure}_precision"),
            low.alias(f"{measure}_low"),
            high.alias(f"{measure}_high"),
        )
    return lines
