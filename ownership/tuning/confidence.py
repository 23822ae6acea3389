"""Owners drawn for an audit, and how sure each is, learnt from the answers (rules 9.7, 9.8).

A logistic regression in numpy, with a prior on its coefficients and a term for answers that are wrong. It is
learnt where it is used, from owners drawn by chance from a plan, and holds for the rules of that plan only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import polars as pl

from ownership.decisions import FEATURES, exclusiveness, least_certain_first
from ownership.declaration import polars_schema
from ownership.rules import Rules
from ownership.tables import ConfidenceBands
from ownership.tuning.accuracy import RATES, AskedTwice, likely
from ownership.windows import Window

MIN_ANSWERED = 50
ASKED_TWICE = 5
"""Hosts of a sheet that are asked about twice, so that the rate of wrong answers is known."""
PRIOR = np.array(
    [
        (0.8, 1.5),  # the constant
        (1.4, 0.8),
        (0.4, 0.4),
        (-0.5, 0.5),
        (0.0, 1.0),
        (0.0, 1.0),
        (0.0, 1.0),
        (0.0, 0.5),
    ]
)
"""What is expected of the coefficients before there are answers: mean and spread, for each of `_features`.

The first four lie between what whole made-up companies of two generators teach, with the truth known, and
the spread holds both. What the others teach differs from one generator to another, so nothing is expected.
"""
BANDS = (0.95, 0.9, 0.8, 0.7, 0.5, 0.0)
"""Lower ends of the bands of `confidence_bands`."""
_DRAWS = 4_500
_SEED = 20260330
_STEPS = 60
_TOGETHER = 1_000
_WIDER = 1.15


def draw_sample(decisions: pl.DataFrame, number: int, *, seed: int) -> pl.DataFrame:
    """Draw so many of the owners that a run planned, all where there are fewer.

    Rows of `owner_decisions` in, and some of them out, the least certain first.
    """
    return least_certain_first(first_drawn(decisions.filter(action="write"), number, seed=seed))


def first_drawn(owners: pl.DataFrame, number: int, *, seed: int) -> pl.DataFrame:
    """Return so many rows of hosts, chosen by chance, in the order of `owners`.

    A seed gives each host its place, whichever others there are: fewer are the first of more.
    """
    places = [blake2b(f"{seed} {host_id}".encode()).digest() for host_id in owners["host_id"]]
    chosen = sorted(range(owners.height), key=places.__getitem__)[:number]
    return owners[sorted(chosen)]


BOTH_WAYS = pl.col("contradicted").fill_null(value=False) & pl.col("right").is_null()
"""Whether a host of an audit is answered yes and no, and has no clear answer since."""


def asked_twice(answers: pl.DataFrame) -> AskedTwice:
    """Count the hosts that were asked twice in rows of `audit_sample`, and the answers that contradict."""
    return AskedTwice(answers["contradicted"].count(), int(answers["contradicted"].sum()))


def drawn_alike(sample: pl.DataFrame, window: Window, rules: Rules, counted: str) -> pl.DataFrame:
    """Return the rows of `audit_sample` that a plan's confidence may be learnt from (rules 9.8).

    They were drawn from a plan of the same rules and with the logons `counted` alike, and from a window that
    was not longer: evidence of fewer days, or of other ones, would look surer than it is.
    """
    same = {text: Rules.from_json(text).of_evidence for text in sample["rules"].drop_nulls().unique()}
    return sample.filter(
        pl.col("rules").is_in([text for text, each in same.items() if each == rules.of_evidence]),
        (pl.col("window_to") - pl.col("window_from")).dt.total_days() + 1 <= window.days,
        counted=counted,
    )


def last_drawn(sample: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `audit_sample` of the last draw, and those from plans like the one of that."""
    drawn = sample.drop_nulls("rules")
    for row in drawn.tail(1).iter_rows(named=True):
        window, rules = Window(row["window_from"], row["window_to"]), Rules.from_json(row["rules"])
        return drawn_alike(drawn, window, rules, row["counted"])
    return drawn


def with_answers(decisions: pl.DataFrame, sample: pl.DataFrame) -> pl.DataFrame:
    """Return each owner that could have been drawn with the answer: host_id, resolved_owner, right_by_audit.

    `decisions` are those of the runs that the rows of `audit_sample` were drawn from; right_by_audit is null
    where no answer was asked for or given, or two answers contradict each other (contradicted).
    """
    answers = sample.select("host_id", "contradicted", resolved_owner="user_id", right_by_audit="right")
    planned = decisions.filter(action="write").select("host_id", "resolved_owner").unique(maintain_order=True)
    # A plan has no owner who was answered no before; it counts on among those that could be drawn.
    return planned.join(answers, on=("host_id", "resolved_owner"), how="full", coalesce=True)


def _log_odds(part: pl.Expr) -> pl.Expr:
    return (part / (1 - part)).log()


def _features() -> Sequence[pl.Expr]:
    """Return what a confidence is learnt from, of `TRAITS`; the last four are about 0 on usual hosts."""
    # Half an event on either side keeps the odds of an only user, or of no runner-up, finite.
    share = (pl.col("events") + 0.5) / (pl.col("total_events") + 1)
    runner_up = (pl.col("runner_up_events").fill_null(0) + 0.5) / (pl.col("events") + 0.5)
    return (
        _log_odds(exclusiveness()),
        _log_odds(share),
        (1 + pl.col("idle_days").clip(0)).log(),
        pl.col("active_days").log() - 2.5,
        pl.col("user_count").log() - 0.5,
        (1 + (pl.col("last_seen") - pl.col("first_seen")).dt.total_days()).log() - 3.2,
        runner_up.log() + 3.4,
    )


@dataclass(frozen=True)
class Model:
    """The most likely coefficients, the constant first, and `draws` of them: a row is as likely as another.

    `answers` is how many answers they were learnt from.
    """

    coefficients: np.ndarray
    draws: np.ndarray
    answers: int

    def confidence(self) -> pl.Expr:
        """Return how likely an owner is right, 0 to 1, of rows with `TRAITS`; null without logons."""
        constant, *factors = map(float, self.coefficients)
        terms = (factor * feature for factor, feature in zip(factors, _features(), strict=True))
        return 1 / (1 + (-(constant + pl.sum_horizontal(terms, ignore_nulls=False))).exp())

    def expected_right(self, owners: pl.DataFrame) -> tuple[float, float, float]:
        """Predict how many of these owners are right, low and high: of rows with the columns `TRAITS`.

        Low and high are a 95% interval of the count: each owner is right or wrong by its own chance, which
        follows from one of the `draws`.
        """
        values, draw = _design(owners), np.random.default_rng(_SEED)
        counts = np.zeros(len(self.draws))
        for part in np.array_split(values, 1 + len(values) // _TOGETHER):
            chances = _sigmoid(part @ self.draws.T)
            counts += (draw.random(chances.shape) < chances).sum(axis=0)
        low, high = np.quantile(counts, [0.025, 0.975])
        expected = _sigmoid(values @ self.coefficients).sum()
        return float(expected), float(low), float(high)


def confidence_bands(model: Model, planned: pl.DataFrame) -> pl.DataFrame:
    """Predict how many of the planned owners are right in each band: rows of `confidence_bands`."""
    rows, owners = [], planned.with_columns(confidence=model.confidence())
    for band, above in zip(BANDS, (2.0, *BANDS), strict=False):
        inside = owners.filter(pl.col("confidence") >= band, pl.col("confidence") < above)
        rows.append((band, inside.height, *model.expected_right(inside)))
    return pl.DataFrame(rows, polars_schema(ConfidenceBands), orient="row")


def answers_missing(answered: pl.DataFrame) -> int:
    """Return how many more answers it takes to learn from rows of `audit_sample`."""
    known = answered.drop_nulls(["right", *FEATURES]).height
    return max(MIN_ANSWERED - known - answered.filter(BOTH_WAYS).height, 0)


def fit(answered: pl.DataFrame) -> Model | None:
    """Learn from rows of `audit_sample`; None where fewer than `MIN_ANSWERED` are answered."""
    if answers_missing(answered):
        return None
    twice, rows = asked_twice(answered), answered.drop_nulls(["right", *FEATURES])
    values, right = _design(rows), rows["right"].to_numpy().astype(float)
    draw, each = np.random.default_rng(_SEED), _DRAWS // len(RATES)
    likeliest, drawn, fits = [], [], []
    for rate, of_twice in zip(RATES, twice.log_likelihood(), strict=True):
        mode, covariance = _most_likely(values, right, rate)
        root, normal = np.linalg.cholesky(covariance), draw.standard_normal((each, len(mode)))
        likeliest.append(mode)
        drawn.append(mode + _WIDER * normal @ root.T)
        proposed = -0.5 * (normal**2).sum(axis=1) - np.log(root.diagonal()).sum()
        fits.append(of_twice - _loss(drawn[-1], values, right, rate) - proposed)
    # Importance sampling: a normal distribution alone is too wide where nearly all answers are yes.
    weights = likely(np.array(fits))
    chosen = draw.choice(weights.size, _DRAWS, p=weights.ravel())
    point = weights.sum(axis=1) @ np.array(likeliest)
    return Model(point, np.concatenate(drawn)[chosen], rows.height)


def _loss(coefficients: np.ndarray, values: np.ndarray, right: np.ndarray, rate: float) -> np.ndarray:
    """Return minus the logarithm of how likely coefficients are by the answers and the prior.

    `coefficients` are one set or rows of several; such a part of the answers is wrong.
    """
    mean, spread = PRIOR.T
    said_yes = rate + (1 - 2 * rate) * _sigmoid(coefficients @ values.T)
    fits = right * np.log(said_yes) + (1 - right) * np.log(1 - said_yes)
    return 0.5 * (((coefficients - mean) / spread) ** 2).sum(axis=-1) - fits.sum(axis=-1)


def _most_likely(values: np.ndarray, right: np.ndarray, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the most likely coefficients if such a part of the answers is wrong, and their covariance.

    Fisher scoring, with steps that are halved until they help.
    """
    mean, spread = PRIOR.T
    coefficients, precision = mean, np.diag(spread**-2)
    for _ in range(_STEPS):
        chances, loss = _sigmoid(values @ coefficients), _loss(coefficients, values, right, rate)
        said_yes = rate + (1 - 2 * rate) * chances
        slope, variance = (1 - 2 * rate) * chances * (1 - chances), said_yes * (1 - said_yes)
        hessian = (values.T * (slope**2 / variance)) @ values + precision
        gradient = values.T @ ((said_yes - right) / variance * slope) + precision @ (coefficients - mean)
        step = np.linalg.solve(hessian, gradient)
        while _loss(coefficients - step, values, right, rate) > loss and np.abs(step).max() > 1e-6:
            step = step / 2
        coefficients = coefficients - step
        if np.abs(step).max() < 1e-6:
            break
    return coefficients, np.linalg.inv(hessian)


def _design(rows: pl.DataFrame) -> np.ndarray:
    features = rows.select(*(each.alias(str(n)) for n, each in enumerate(_features()))).to_numpy()
    return np.column_stack([np.ones(len(features)), features])


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(values, -30, 30)))
