"""How sure a share or a number of wrong owners is, from few hosts that may not be independent."""

from collections.abc import Iterable
from math import sqrt
from typing import Any

import numpy as np
import polars as pl

Z_95 = 1.959963984540054
"""Two-sided 95% quantile of the normal distribution."""

_Z_UNLIKE = 2.5758293035489004
"""One-sided 99.5% quantile: of four characteristics by chance one in fifty is called unlike."""

_DRAWS = 10_000
_SEED = 20260330


def effective(squares: Any, number: Any) -> Any:
    """Kish's effective number of hosts: those that one person leads are one try (L. Kish, 1965).

    `squares` is the sum, over persons, of the squared number of their hosts, `number` that of all hosts;
    both expressions or both arrays.
    """
    return number * number / squares


def wilson(right: pl.Expr, compared: pl.Expr, tries: pl.Expr) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """The share of right answers with Wilson's 95% score interval (E. B. Wilson, JASA 22, 1927).

    `tries` is the effective number of what was compared. Precision, low, high: 0 to 1, or null.
    """
    n = pl.when(compared > 0).then(tries)
    share, z2 = right / pl.when(compared > 0).then(compared), Z_95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 / (1 + z2 / n) * (share * (1 - share) / n + z2 / (4 * n * n)).sqrt()
    return share, (centre - half).clip(0, 1), (centre + half).clip(0, 1)


Band = tuple[float, float, float, float, float]
"""The hosts compared, the wrong ones of them and their effective number; hosts to write, effective number."""


def wrong_among(bands: Iterable[Band]) -> tuple[float, float, float]:
    """Predict how many owners to write are wrong: estimate, low and high of a 95% interval of the count.

    Within a band the share of wrong ones has Jeffreys' beta distribution and the count, given the share, a
    binomial one; a band in which nothing was compared is like all others.
    """
    rows, draw, counts = _to_write(bands), np.random.default_rng(_SEED), np.zeros(_DRAWS)
    for n, k, size, to_write, of_write in rows:
        of_tries = size / n if n else 1.0
        shares = draw.beta(k * of_tries + 0.5, (n - k) * of_tries + 0.5, _DRAWS)
        independent = max(round(of_write), 1)
        counts += draw.binomial(independent, shares) * (to_write / independent)
    low, high = np.quantile(counts, [0.025, 0.975])
    estimate = sum(to_write * (k + 0.5) / (n + 1) for n, k, _, to_write, _ in rows)
    return estimate, float(low), float(high)


def _to_write(bands: Iterable[Band]) -> list[Band]:
    """The bands with hosts to write; one in which nothing was compared has what was compared in all."""
    rows = [band for band in bands if band[0] or band[3]]
    total = np.array(rows, dtype=float).reshape(-1, 5).sum(axis=0)
    like_all = [(total[0], total[1], total[2], *row[3:]) if not row[0] else row for row in rows]
    return [row for row in like_all if row[3]]


def wrong_by_audit(
    answered: int, wrong: int, *, drawn_from: int, to_write: int
) -> tuple[float, float, float]:
    """Predict how many owners to write are wrong from answers for some of them, drawn by chance.

    Estimate, low and high as of `wrong_among`. `drawn_from` of the hosts to write could have been drawn:
    those answered are known, the others predicted. The rest were planned since then and could all be right,
    or all wrong.
    """
    draw = np.random.default_rng(_SEED)
    shares = draw.beta(wrong + 0.5, answered - wrong + 0.5, _DRAWS)
    low, high = np.quantile(draw.binomial(drawn_from - answered, shares), [0.025, 0.975])
    estimate = wrong + (to_write - answered) * (wrong + 0.5) / (answered + 1)
    return estimate, wrong + float(low), wrong + float(high) + to_write - drawn_from


def unlike(compared: np.ndarray, to_write: np.ndarray, *, scale: float) -> bool:
    """Whether two samples differ in a characteristic beyond chance: Pearson's test of homogeneity.

    Both hold the numbers of hosts by value; `scale` says how many independent tries a host is.
    """
    table = np.array([compared, to_write], dtype=float)
    table = table[:, table.sum(axis=0) > 0]
    if table.shape[1] < 2 or not table.sum(axis=1).all():
        return False
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    statistic = scale * float(((table - expected) ** 2 / expected).sum())
    freedom = table.shape[1] - 1
    # The quantile of chi squared by E. B. Wilson and M. M. Hilferty, PNAS 17, 1931.
    limit = freedom * (1 - 2 / (9 * freedom) + _Z_UNLIKE * sqrt(2 / (9 * freedom))) ** 3
    return statistic > limit
