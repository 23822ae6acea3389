"""How often the owner decided on is the right one, by three measures (rules 9.1, 9.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import floor, sqrt
from statistics import NormalDist
from typing import Any
from zlib import crc32

import numpy as np
import polars as pl

from ownership.decisions import HAS_OWNER
from ownership.declaration import polars_schema
from ownership.history import last_writes
from ownership.rules import Rules, exceeds_threshold, first_that_holds, names_owner
from ownership.tables import Accuracy

_DRAWS = 10_000
_FEW_DRAWS = 2_000
_SEED = 20260330
_QUANTILES = (2 * np.arange(9) + 1) / 18
RATES = 1 - (1 - _QUANTILES) ** (1 / 40)
"""Parts of the answers that may be wrong, equally likely if no host was asked twice.

Quantiles of a beta distribution with a mean of 2.4%: people who know a host are seldom wrong about it.
"""
_PARTS = (np.arange(200) + 0.5) / 200


@dataclass(frozen=True)
class AskedTwice:
    """How many hosts of an audit have two answers, and how many of them got two that contradict."""

    hosts: int
    contradicted: int

    def log_likelihood(self) -> np.ndarray:
        """Return how well each of `RATES` explains that so many answers contradict each other."""
        differ = 2 * RATES * (1 - RATES)
        alike = self.hosts - self.contradicted
        return self.contradicted * np.log(differ) + alike * np.log(1 - differ)

    def rate(self) -> float:
        """Estimate which part of all answers is wrong, 0 to 1."""
        return float(likely(self.log_likelihood()) @ RATES)


def likely(log_likelihood: np.ndarray) -> np.ndarray:
    """Return probabilities that add up to 1, from the logarithms of likelihoods."""
    weights = np.exp(log_likelihood - log_likelihood.max())
    return weights / weights.sum()


def effective_sample_size(squares: Any, number: Any) -> Any:
    """Return Kish's effective number of hosts: those with one primary user are one try (L. Kish, 1965).

    `squares` is the sum, over persons, of the squared number of their hosts, `number` that of all hosts;
    both numbers or both arrays.
    """
    return number * number / squares


def wilson(right: int, hosts: int, squares: int) -> tuple[float | None, float | None, float | None]:
    """Return the share of right answers with Wilson's 95% score interval (E. B. Wilson, JASA 22, 1927).

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


def wrong_of_others(
    found: Sequence[float], owners: int, undone: pl.DataFrame
) -> tuple[int, tuple[float, ...]]:
    """Return how many owners are not undone, and how many of these are wrong, where `found` are of all.

    `undone` has right: who was answered no was one of the wrong ones, the rest are like those not undone.
    """
    no, others = undone.filter(right=False).height, owners - undone.height
    return others, tuple(max(number - no, 0) * others / max(owners - no, 1) for number in found)


def least_right_percent(answered: int) -> int:
    """Return the least percentage of a plan that is right if all answers of an audit are yes (95%)."""
    return floor(100 * 0.05 ** (1 / answered))


def most_biased_trait(traits: np.ndarray, chosen: np.ndarray, *, level: float) -> int | None:
    """Return the trait that best predicts whether a host is chosen; None: none does beyond chance.

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


HOLDOUT_DAYS = 7
"""Days that are held back for the measure `future` (rules 9.2)."""
USUAL_PART = 0.75
"""Part of the usual logons that the days held back must have; holidays have fewer, of other people."""

SHARE_BANDS: Mapping[str, pl.Expr] = {
    "only user": pl.col("user_count") == 1,
    "up to 60%": ~exceeds_threshold(60),
    "60 to 70%": ~exceeds_threshold(70),
    "70 to 80%": ~exceeds_threshold(80),
    "80 to 90%": ~exceeds_threshold(90),
    "over 90%": pl.lit(value=True),
}
"""Bands of the primary user's share, in rows of `evidence.primary_users`."""
_DAYS = {"1": 1, "2 to 4": 4, "5 to 9": 9, "10 to 19": 19}
BANDS: Mapping[str, pl.Expr] = {
    "share_band": first_that_holds(SHARE_BANDS.items()),
    "active_days_band": first_that_holds(
        (name, pl.col("active_days") <= most) for name, most in _DAYS.items()
    ).fill_null("20 or more"),
}
TRAITS: Mapping[str, str] = {
    "share": "the primary user's share",
    "active_days": "the primary user's active days",
    "user_count": "number of users",
    "last_seen": "the primary user's last logon",
    "user_hosts": "number of hosts of the primary user",
}
"""What hosts whose owner somebody set, and all others, may differ in (rules 9.4): columns and words."""


@dataclass(frozen=True)
class Comparison:
    """What would be decided on a window if every primary user was named, and whether that is right.

    Both frames have the columns of `decisions.with_action` and `TRAITS`. `now` has those of `owners_known`,
    right_by_people (null: no owner set by hand, or none decided on), right_by_audit (null: no answer),
    audited (an audit could have drawn this owner) and is_answered_no (so that the run does not write them).
    `before`, a window as long that ends before the days held back, has right_afterwards (null: no user logged
    on in them, or the primary user has no user asset, or the days are not usual).
    """

    now: pl.DataFrame
    before: pl.DataFrame
    usual: bool


def owners_known(hosts: pl.DataFrame, writes: pl.DataFrame) -> pl.DataFrame:
    """Return who set the owner of each host (rules 9.1): host_id, by_hand, right_by_writes, in_training_half.

    An owner that we wrote is not set by hand; right_by_writes says whether the host still has it (null: the
    owner was forgotten). The half in training chooses the best settings, and the other half judges them.
    """
    halves = [crc32(host_id.encode()) % 2 == 0 for host_id in hosts["host_id"]]
    ours = last_writes(hosts, writes.lazy()).filter(outcome="written")
    return (
        hosts.lazy()
        .with_columns(in_training_half=pl.Series(halves, dtype=pl.Boolean))
        .join(ours.select("host_id", "run_id", right_by_writes="holds"), on="host_id", how="left")
        .select(
            "host_id",
            "right_by_writes",
            "in_training_half",
            by_hand=HAS_OWNER & pl.col("run_id").is_null(),
        )
        .collect()
    )


def accuracy(judged: Comparison, users: pl.DataFrame, *, rules: Rules) -> pl.DataFrame:
    """Count how often each measure says that the owner decided on is the right one.

    `users` are rows of `inventory_users`. Rows of `accuracy`, sorted by measure, by and value.
    """
    departments = users.select(resolved_owner="user_id", department="user_department")
    measures = (
        ("people", judged.now.filter(names_owner(rules)), "right_by_people"),
        ("future", judged.before.filter(names_owner(rules)), "right_afterwards"),
        ("corrected", judged.now, "right_by_writes"),
    )
    columns = ("username", "share_band", "active_days_band", "resolved_owner")
    judged_hosts = pl.concat(
        frame.select(*columns, measure=pl.lit(measure), right=right).drop_nulls("right")
        for measure, frame, right in measures
    ).join(departments, on="resolved_owner", how="left")
    parts = {
        "all": pl.lit("all"),
        "share_band": pl.col("share_band"),
        "active_days": pl.col("active_days_band"),
        "department": pl.col("department").fill_null("none known"),
    }
    counted = pl.concat(
        judged_hosts.group_by("measure", "username", by=pl.lit(by), value=value)
        .agg(hosts=pl.len().cast(pl.Int64), right_hosts=pl.sum("right").cast(pl.Int64))
        .group_by("measure", "by", "value")
        .agg(pl.sum("hosts", "right_hosts"), squares=(pl.col("hosts") ** 2).sum())
        for by, value in parts.items()
    )
    compared = counted.select("measure", "by", "value", "hosts", "right_hosts", "squares").rows()
    # A measure that compared nothing says so: a row of its own, without a share.
    compared += [
        (measure, "all", "all", 0, 0, 0) for measure, *_ in measures if measure not in counted["measure"]
    ]
    rows = [(*row, hosts, right, *wilson(right, hosts, squares)) for *row, hosts, right, squares in compared]
    return pl.DataFrame(rows, polars_schema(Accuracy), orient="row").sort("measure", "by", "value")
