"""What is learnt from fifty answers, on companies whose truth is known (rules 9.8, 9.9)."""

import polars as pl
import pytest

from ownership.declaration import validated
from ownership.rules import Rules
from ownership.tables import ConfidenceBands
from ownership.tuning.audit import draw_sample
from ownership.tuning.confidence import confidence_bands, fit, least_certain_first
from tests.ownership.tuning.companies import COMPANIES, decisions, draw


def planned_and_right(name, seed=0, rules=None):
    """The owners that a run would write, and whether each is right."""
    drawn = draw(COMPANIES[name], seed)
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
def test_what_the_guide_says_of_confidence_holds_over_40_draws():
    precision, found = [], []
    for name in COMPANIES:
        for seed in range(5):
            planned = planned_and_right(name, seed)
            model = fit(draw_sample(planned, 50, seed=seed))
            assert model, (name, seed)
            sure = planned.filter(model.confidence() >= 0.8)
            expected = model.expected_right(sure)
            precision.append(part_of(sure["right"]))
            found.append(expected.low <= sure["right"].sum() <= expected.high)
    assert sum(precision) / len(precision) > 0.96
    assert sorted(precision)[len(precision) // 10] > 0.90
    assert sum(found) >= 36
