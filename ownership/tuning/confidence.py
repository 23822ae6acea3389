"""Owners drawn for an audit, and how sure each is, learnt from the answers (rules 9.7, 9.8).

A ridge logistic regression in numpy, learnt where it is used, from owners that were drawn by chance from a
plan; it holds for the rules of that plan only.
"""

import random
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
import polars as pl

from ownership.certainty import FEATURES, exclusiveness, least_certain_first
from ownership.declaration import polars_schema
from ownership.rules import Rules
from ownership.tables import ConfidenceBands
from ownership.windows import Window

MIN_ANSWERED = 50
"""Answers that are needed, with both right and wrong ones among them."""
PENALTY = 1.0
BANDS = (0.95, 0.9, 0.8, 0.7, 0.5, 0.0)
"""Lower ends of the bands of `confidence_bands`."""
_DRAWS = 4_000
_SEED = 20260330
_STEPS = 50
_TOGETHER = 1_000


def draw_sample(decisions: pl.DataFrame, number: int, *, seed: int) -> pl.DataFrame:
    """Draw so many of the owners that a run planned, all where there are fewer; the same ones for a seed.

    Rows of `owner_decisions` in, and some of them out, the least certain first.
    """
    planned = decisions.filter(action="write").sort("host_id")
    chosen = random.Random(seed).sample(range(planned.height), min(number, planned.height))  # noqa: S311
    return least_certain_first(planned[sorted(chosen)])


def drawn_alike(sample: pl.DataFrame, window: Window, rules: Rules) -> pl.DataFrame:
    """Return the rows of `audit_sample` from plans of the same rules and such a window (rules 9.8).

    Evidence of more days, or of other ones, looks surer than it is to what was learnt before.
    """
    same = {text: Rules.from_json(text).of_evidence for text in sample["rules"].drop_nulls().unique()}
    first, last = pl.col("window_from"), pl.col("window_to")
    return sample.filter(
        pl.col("rules").is_in([text for text, each in same.items() if each == rules.of_evidence]),
        (last - first).dt.total_days() + 1 == window.days,
        first <= window.last,
        last >= window.first,
    )


def last_drawn(sample: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `audit_sample` of the last draw, and those from plans like the one of that."""
    drawn = sample.drop_nulls("rules")
    for row in drawn.tail(1).iter_rows(named=True):
        window, rules = Window(row["window_from"], row["window_to"]), Rules.from_json(row["rules"])
        return drawn_alike(drawn, window, rules)
    return drawn


def with_answers(decisions: pl.DataFrame, sample: pl.DataFrame) -> pl.DataFrame:
    """Return each owner that could have been drawn with the answer: host_id, resolved_owner, right_by_audit.

    `decisions` are those of the run that the rows of `audit_sample` were drawn from; right_by_audit is null
    where nobody was asked, or nobody has answered.
    """
    answers = sample.select("host_id", resolved_owner="user_id", right_by_audit="right")
    planned = decisions.filter(action="write").select("host_id", "resolved_owner")
    # A plan has no owner who was answered no before; it counts on among those that could be drawn.
    return planned.join(answers, on=("host_id", "resolved_owner"), how="full", coalesce=True)


def _log_odds(part: pl.Expr) -> pl.Expr:
    return (part / (1 - part)).log()


def _features() -> Sequence[pl.Expr]:
    # Half an event on either side keeps the odds of an only user finite.
    share = (pl.col("events") + 0.5) / (pl.col("total_events") + 1)
    return _log_odds(exclusiveness()), _log_odds(share), (1 + pl.col("idle_days").clip(0)).log()


@dataclass(frozen=True)
class Expected:
    """How many of so many owners are expected to be right, with a 95% interval."""

    owners: int
    right: float
    low: float
    high: float


@dataclass(frozen=True)
class Model:
    """Coefficients for the standardised features, the constant first, and how uncertain they are.

    `answers` is how many answers they were learnt from.
    """

    mean: np.ndarray
    scale: np.ndarray
    coefficients: np.ndarray
    covariance: np.ndarray
    answers: int

    def confidence(self) -> pl.Expr:
        """Return how likely an owner is right, 0 to 1, of rows with `FEATURES`; null without logons."""
        constant, *factors = map(float, self.coefficients)
        terms = (
            factor * (feature - float(mean)) / float(scale)
            for factor, feature, mean, scale in zip(factors, _features(), self.mean, self.scale, strict=True)
        )
        return 1 / (1 + (-(constant + pl.sum_horizontal(terms, ignore_nulls=False))).exp())

    def expected_right(self, owners: pl.DataFrame) -> Expected:
        """Predict how many of these owners are right: rows with the columns `FEATURES`.

        Low and high are a 95% interval of the count: coefficients drawn from their uncertainty, then each
        owner right or wrong by its own chance.
        """
        values = _design(owners, self.mean, self.scale)
        draw = np.random.default_rng(_SEED)
        drawn = draw.multivariate_normal(self.coefficients, self.covariance, _DRAWS)
        counts = np.zeros(_DRAWS)
        for part in np.array_split(values, 1 + len(values) // _TOGETHER):
            chances = _sigmoid(part @ drawn.T)
            counts += (draw.random(chances.shape) < chances).sum(axis=0)
        low, high = np.quantile(counts, [0.025, 0.975])
        expected = _sigmoid(values @ self.coefficients).sum()
        return Expected(len(values), float(expected), float(low), float(high))


def confidence_bands(model: Model, planned: pl.DataFrame) -> pl.DataFrame:
    """Predict how many of the planned owners are right in each band: rows of `confidence_bands`."""
    rows, owners = [], planned.with_columns(confidence=model.confidence())
    for band, above in zip(BANDS, (2.0, *BANDS), strict=False):
        inside = owners.filter(pl.col("confidence") >= band, pl.col("confidence") < above)
        rows.append((band, *astuple(model.expected_right(inside))))
    return pl.DataFrame(rows, polars_schema(ConfidenceBands), orient="row")


def fit(answered: pl.DataFrame) -> Model | None:
    """Learn from rows with `FEATURES` and right; None where the answers are too few, or all alike."""
    rows = answered.drop_nulls(["right", *FEATURES])
    right = rows["right"].to_numpy().astype(float)
    if len(right) < MIN_ANSWERED or not 0 < right.sum() < len(right):
        return None
    features = rows.select(*(each.alias(str(n)) for n, each in enumerate(_features()))).to_numpy()
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    values = _design(rows, mean, scale)
    penalty = np.diag([0.0, *[PENALTY] * len(mean)])
    coefficients = np.zeros(values.shape[1])
    for _ in range(_STEPS):  # Newton's method
        chances = _sigmoid(values @ coefficients)
        weights = np.maximum(chances * (1 - chances), 1e-9)
        hessian = (values.T * weights) @ values + penalty
        step = np.linalg.solve(hessian, values.T @ (right - chances) - penalty @ coefficients)
        coefficients = coefficients + step
        if np.abs(step).max() < 1e-8:
            break
    return Model(mean, scale, coefficients, np.linalg.inv(hessian), len(right))


def _design(rows: pl.DataFrame, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    features = rows.select(*(each.alias(str(n)) for n, each in enumerate(_features()))).to_numpy()
    return np.column_stack([np.ones(len(features)), (features - mean) / scale])


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))
