"""How sure a share or a number of wrong owners is, from few hosts that may not be independent."""

from dataclasses import dataclass
from functools import lru_cache
from math import floor, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

_DRAWS = 10_000
_FEW_DRAWS = 2_000
_SEED = 20260330
_QUANTILES = (2 * np.arange(9) + 1) / 18
RATES = 1 - (1 - _QUANTILES) ** (1 / 40)
"""Parts of the answers that may be wrong, as likely as each other where nobody was asked twice.

Quantiles of a beta distribution with a mean of 2.4%: people who know a host are seldom wrong about it.
"""
_PARTS = (np.arange(200) + 0.5) / 200


@dataclass(frozen=True)
class AskedTwice:
    """How many hosts of an audit have two answers, and how many of them got two that contradict."""

    hosts: int
    contradicted: int

    def log_likelihood(self) -> np.ndarray:
        """How well each of `RATES` explains that so many answers contradict each other."""
        differ = 2 * RATES * (1 - RATES)
        alike = self.hosts - self.contradicted
        return self.contradicted * np.log(differ) + alike * np.log(1 - differ)

    def rate(self) -> float:
        """Estimate which part of all answers is wrong, 0 to 1."""
        return float(likely(self.log_likelihood()) @ RATES)


def likely(log_likelihood: np.ndarray) -> np.ndarray:
    """Return how likely each of some cases is, 1 in sum, from the logarithms of their likelihoods."""
    weights = np.exp(log_likelihood - log_likelihood.max())
    return weights / weights.sum()


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


@lru_cache(maxsize=4096)  # many settings would write the same hosts
def wrong_by_audit(
    answered: int, wrong: int, *, twice: AskedTwice, drawn_from: int, to_write: int
) -> tuple[float, float, float]:
    """Predict how many owners to write are wrong from answers for some of them, drawn by chance.

    Estimate, low and high as of `wrong_among`. `answered` are those with one answer, or with two that agree;
    any of these may be wrong, as often as the hosts asked twice tell. `drawn_from` of the hosts to write
    could have been drawn. The rest were planned since then and could all be right, or all wrong.
    """
    rates = RATES[:, None]
    said_no = _PARTS * (1 - rates) + (1 - _PARTS) * rates
    likelihood = wrong * np.log(said_no) + (answered - wrong) * np.log(1 - said_no)
    jeffreys = -0.5 * np.log(_PARTS * (1 - _PARTS))
    cases = likely(likelihood + jeffreys + twice.log_likelihood()[:, None])
    wrong_if_no, wrong_if_yes = _PARTS * (1 - rates) / said_no, _PARTS * rates / (1 - said_no)
    of_answered = wrong * wrong_if_no + (answered - wrong) * wrong_if_yes
    estimate = float((cases * (of_answered + (to_write - answered) * _PARTS)).sum())
    draw = np.random.default_rng(_SEED)
    drawn = draw.choice(cases.size, _FEW_DRAWS, p=cases.ravel())
    counts = sum(
        draw.binomial(number, np.broadcast_to(chance, cases.shape).ravel()[drawn])
        for number, chance in (
            (wrong, wrong_if_no),
            (answered - wrong, wrong_if_yes),
            (drawn_from - answered, _PARTS),
        )
    )
    low, high = np.quantile(counts, [0.025, 0.975])
    return estimate, float(low), float(high) + to_write - drawn_from


def least_right_percent(answered: int) -> int:
    """Percent of a plan that are right at least, if all answers for hosts drawn by chance are yes (95%)."""
    return floor(100 * 0.05 ** (1 / answered))


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
