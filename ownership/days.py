"""Days with a logon as bits of numbers, so that days under several names are counted once.

Of which days a window is made is said in `windows`.
"""

from datetime import date

import polars as pl

from ownership.rules import Rules

BITS = pl.selectors.starts_with("days of weight ")
"""The columns that `day_bits` makes; a bitwise `or` of several rows holds the days of all of them."""

_DAYS = 32
"""Days that one number holds."""


def day_bits(counts: pl.LazyFrame, rules: Rules) -> dict[str, pl.Expr]:
    """Gather the days with a logon, a bit for each, of rows of `logon_counts` with `weighed`.

    Where days are weighed by kinds of logon, there are numbers for each weight: of the days with a logon of
    that weight or more.

    Args:
        counts: All the rows; read for their first and last day.
        rules: The instance's rules.
    """
    first, last = counts.select(first=pl.min("day"), last=pl.max("day")).collect().row(0)
    days = (last - first).days + 1 if first else 1
    number = pl.col("day").to_physical() - ((first or date.min) - date(1970, 1, 1)).days
    bit = pl.lit(2, pl.UInt32).pow((number % _DAYS).cast(pl.UInt32))
    return {
        f"days of weight {least} from {start}": pl.when(
            number // _DAYS == start // _DAYS, *([pl.col("greatest") >= least] if least > 1 else [])
        )
        .then(bit)
        .bitwise_or()
        for least in _weights(rules)
        for start in range(0, days, _DAYS)
    }


def counted_days(rules: Rules) -> dict[str, pl.Expr]:
    """Count the days of `day_bits`: active_days; where days are weighed by kinds of logon, weighted_days."""
    weights = _weights(rules)
    days = [
        pl.sum_horizontal(pl.col(f"^days of weight {least} from .*$").bitwise_count_ones()).cast(pl.Int64)
        for least in weights
    ]
    if not _by_kind(rules):
        return {"active_days": days[0]}
    # A day has the greatest weight of its logons, which is the sum of all steps up to it.
    steps = (weight - below for weight, below in zip(weights, [0, *weights], strict=False))
    weighted_days = pl.sum_horizontal(each * step for each, step in zip(days, steps, strict=True))
    return {"active_days": days[0], "weighted_days": weighted_days}


def _weights(rules: Rules) -> list[int]:
    """The weights that a day can have, the least first."""
    return sorted({1, *(rules.logon_type_weights.values() if _by_kind(rules) else ())})


def _by_kind(rules: Rules) -> bool:
    return rules.evidence_metric == "days" and bool(rules.logon_type_weights)
