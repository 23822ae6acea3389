"""How sure a share or a number of wrong owners is, from few hosts that may not be independent."""

from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

_DRAWS = 10_000
_SEED = 20260330


def effective_sample_size(squares: Any, number: Any) -> Any:
    """Kish's effective number of hosts: those with one primary user are one try (L. Kish, 1965).

    `squares` is the sum, over persons, of the squared number of their hosts, `number` that of all hosts;
    both numbers or both arrays.
    """
    return number * number / squares


def wilson(right: int, hosts: int, squares: int) -> tuple[float | None, float | None, float | None]:
    """The share of right answers with Wilson's 95% score interval (E. B. Wilson, JASA 22, 1927).

    `squares` as for `effective_sample_size`. Precision, low, high: 0 to 1; None without hosts.
    """
    if not hosts:
        return None, None, None
    share, n, z = right / hosts, effective_sample_size(squares, hosts), NormalDist().inv_cdf(0.975)
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * sqrt(share * (1 - share) / n + z**2 / (4 * n * n))
    return share, max(centre - half, 0.0), min(centre + half, 1.0)


Bands = tuple[np.ndarray, np.ndarray]
"""The number of hosts in each band, and their effective number."""


def wrong_among(compared: Bands, wrong: np.ndarray, to_write: Bands) -> tuple[float, float, float]:
    """Predict how many owners to write are wrong: estimate, low and high of a 95% interval of the count.

    `wrong` is the number of wrong ones in each band. Within a band the share of wrong ones has Jeffreys' beta
    distribution and the count, given the share, a binomial one; a band in which nothing was compared is like
    all others.
    """
    hosts, tries = compared
    written = to_write[0] > 0
    n, k, tries = (np.where(hosts > 0, of, of.sum())[written] for of in (hosts, wrong, tries))
    hosts, independent = to_write[0][written], to_write[1][written].round().astype(int)
    tries_per_host = np.divide(tries, n, out=np.ones(len(n)), where=n > 0)
    draw = np.random.default_rng(_SEED)
    shares = draw.beta(k * tries_per_host + 0.5, (n - k) * tries_per_host + 0.5, (_DRAWS, len(n)))
    counts = (draw.binomial(independent, shares) * (hosts / independent)).sum(axis=1)
    low, high = np.quantile(counts, [0.025, 0.975])
    return float((hosts * (k + 0.5) / (n + 1)).sum()), float(low), float(high)


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


def most_biased_trait(traits: np.ndarray, chosen: np.ndarray, *, level: float) -> int | None:
    """Find the trait that tells most whether a host is chosen; None: all together do not beyond chance.

    A row of `traits` is a host. The score test of logistic regression: linear in the traits, so that a few
    hosts of each of many kinds add up. `level` is how often hosts that differ by chance are told apart.
    """
    traits, chosen = traits - traits.mean(axis=0), chosen - chosen.mean()
    products, covariance, variance = traits.T @ traits, traits.T @ chosen, chosen @ chosen
    freedom = np.linalg.matrix_rank(products, hermitian=True)
    if not freedom or not variance:
        return None
    statistic = len(chosen) * covariance @ np.linalg.pinv(products, hermitian=True) @ covariance / variance
    # The quantile of chi squared by E. B. Wilson and M. M. Hilferty, PNAS 17, 1931.
    quantile = NormalDist().inv_cdf(1 - level)
    limit = freedom * (1 - 2 / (9 * freedom) + quantile * sqrt(2 / (9 * freedom))) ** 3
    if statistic <= limit:
        return None
    return int(np.argmax(covariance**2 / np.maximum(products.diagonal(), 1e-9)))
