"""What is learnt from fifty answers, on companies whose truth is known (rules 9.8, 9.9)."""

from random import Random

import polars as pl
import pytest

from ownership.certainty import least_certain_first
from ownership.declaration import validated
from ownership.rules import Rules
from ownership.tables import ConfidenceBands
from ownership.tuning.confidence import confidence_bands, draw_sample, fit
from tests.ownership.tuning.companies import COMPANIES, VISITED, decisions, draw

pytestmark = pytest.mark.jobs  # or takes as long


def planned_and_right(name, seed=0, rules=None):
    """The owners that a run would write, and whether each is right."""
    drawn = draw((COMPANIES | VISITED)[name], seed)
    owner = pl.col("host_id").replace_strict(drawn.truth, return_dtype=pl.String)
    planned = decisions(drawn, rules or Rules()).filter(action="write")
    return planned.with_columns(right=owner.eq_missing(pl.col("resolved_owner")))


def part_of(answers):
    """The part of the answers that are yes."""
    return answers.sum() / len(answers)


@pytest.fixture(scope="module")
def hospital():
    return planned_and_right("hospital")


def test_fifty_answers_find_the_owners_that_are_right(hospital):
    model = fit(draw_sample(hospital, 50, seed=1))
    assert model
    sure = hospital.filter(model.confidence() >= 0.8)
    assert part_of(sure["right"]) > max(part_of(hospital["right"]) + 0.1, 0.93)
    bands = validated(ConfidenceBands, confidence_bands(model, hospital))
    assert bands["hosts"].sum() == hospital.height
    expected, low, high = model.expected_right(sure).right, *bands.select(pl.sum("low", "high")).row(0)
    assert abs(expected - sure["right"].sum()) < 0.05 * sure.height
    assert low <= hospital["right"].sum() <= high


def test_nobody_is_the_likely_owner_of_a_host_without_logons(hospital):
    model = fit(draw_sample(hospital, 50, seed=1))
    assert model
    without = hospital.head(1).with_columns(
        pl.lit(0).alias("events"),
        pl.lit(0).alias("total_events"),
        active_days=pl.lit(None, pl.Int64),
        idle_days=pl.lit(None, pl.Int64),
    )
    assert without.select(model.confidence()).item() is None


def test_too_few_answers_or_answers_that_are_all_alike_teach_nothing(hospital):
    sample = draw_sample(hospital, 50, seed=1)
    assert fit(sample.head(49)) is None
    assert fit(sample.with_columns(right=pl.lit(value=True))) is None
    assert (
        fit(pl.concat([sample.head(49), sample.tail(1).with_columns(right=pl.lit(None, pl.Boolean))])) is None
    )


def test_the_first_half_of_a_plan_holds_nearly_all_wrong_owners(hospital):
    ordered = least_certain_first(hospital)["right"]
    first, second = ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]
    assert part_of(~first) > 0.85 * 2 * part_of(~ordered)
    assert part_of(second) > 0.95


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("wrong_answers", [0, 0.05])
@pytest.mark.parametrize("companies", [COMPANIES, VISITED], ids=["laptops", "with visitors"])
def test_what_the_guide_says_of_confidence_holds(companies, wrong_answers):
    """Five seeds of each company; some of the answers may be wrong."""
    precision, held, draws = [], 0, [(name, seed) for name in companies for seed in range(5)]
    said = pl.DataFrame()
    for name, seed in draws:
        planned, rng = planned_and_right(name, seed), Random(seed)  # noqa: S311  (nothing to hide)
        sample = draw_sample(planned, 50, seed=seed)
        answers = [right != (rng.random() < wrong_answers) for right in sample["right"]]
        model = fit(sample.with_columns(right=pl.Series(answers)))
        assert model, (name, seed)
        owners = planned.with_columns(confidence=model.confidence())
        sure = owners.filter(pl.col("confidence") >= 0.8)
        expected = model.expected_right(sure)
        precision.append(part_of(sure["right"]))
        held += expected.low <= sure["right"].sum() <= expected.high
        said = said.vstack(sure.select("confidence", "right"))
    assert sum(precision) / len(precision) > 0.96
    assert sorted(precision)[len(precision) // 10] > 0.90
    assert held >= 0.8 * len(draws) if wrong_answers else held >= 0.9 * len(draws)
    # It errs to the safe side: fifty answers are few for three features, and a wrong one looks like an error.
    sure = said.filter(pl.col("confidence") >= 0.95)
    if not wrong_answers:
        assert part_of(sure["right"]) == pytest.approx(part_of(sure["confidence"]), abs=0.03)
    assert 0 < part_of(said["right"]) - part_of(said["confidence"]) < 0.08
