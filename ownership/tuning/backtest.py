"""What other settings would have led to, on the evidence that is stored: counted for many at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import polars as pl

from ownership.declaration import polars_schema
from ownership.rules import Rules, enough, leads
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
    steps = {
        "threshold_percent": [leads(replace(rules, share_threshold_percent=t)) for t in tried.thresholds],
        "min_events": [enough(replace(rules, min_events=e, min_active_days=1)) for e in tried.min_events],
        "min_active_days": [
            enough(replace(rules, min_events=1, min_active_days=d)) for d in tried.min_active_days
        ],
    }
    lines = pl.DataFrame(
        product(tried.thresholds, tried.min_events, tried.min_active_days),
        schema=dict.fromkeys(steps, pl.Int64),
        orient="row",
    ).with_row_index("line")
    by_band = _by_band(judged.now, lines, steps, counted).join(
        _by_band(judged.before, lines, steps, compared), on=("line", "share_band"), how="full", coalesce=True
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


def _by_band(
    frame: pl.DataFrame,
    lines: pl.DataFrame,
    steps: Mapping[str, Sequence[pl.Expr]],
    counted: Mapping[str, pl.Expr],
) -> pl.DataFrame:
    """Count, for each line and share band, the hosts that the line names and each expression holds for.

    Who passes one value of a setting passes all smaller ones. So hosts are counted once, by how many values
    of each setting they pass, and a line adds up those who pass its own.
    """
    passed = {f"{name} passed": pl.sum_horizontal(each).cast(pl.Int64) for name, each in steps.items()}
    cells = (
        frame.filter("eligible", pl.col("total_events") > 0)
        .with_columns(**counted, **passed)
        .group_by("share_band", *passed)
        .agg(pl.col(*counted).sum().cast(pl.Int64))
    )
    places = {name: pl.col(name).rank("dense").cast(pl.Int64) for name in steps}
    names = [pl.col(f"{name} passed") >= pl.col(name) for name in steps]
    return (
        lines.with_columns(**places)
        .join(cells, how="cross")
        .filter(*names)
        .group_by("line", "share_band")
        .agg(pl.sum(*counted))
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
