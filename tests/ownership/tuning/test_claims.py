"""How sure a share or a number of wrong owners is, and whether hosts compared are like the others."""

import numpy as np
import pytest

from ownership.tuning.accuracy import (
    AskedTwice,
    least_right_percent,
    most_biased_trait,
    wilson,
    wrong_among,
    wrong_by_audit,
)


@pytest.mark.parametrize(
    ("right", "compared", "low", "high"),
    [(0, 10, 0, 0.2775), (10, 10, 0.7225, 1), (81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605)],
)
def test_the_interval_is_wilson_s(right, compared, low, high):
    """The last two as in R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3."""
    share, lower, upper = wilson(right, compared, compared)
    assert share == right / compared
    assert (lower, upper) == pytest.approx((low, high), abs=5e-5)


def bands(*hosts, each=1):
    """So many hosts in each band, so many of them of one primary user."""
    return np.array(hosts), np.array(hosts) / each


@pytest.mark.parametrize(("compared", "wrong"), [((100, 100), (0.04, 0.06)), ((100, 0), (1.9, 2.2))])
def test_a_band_counts_by_what_was_compared_in_it_and_by_all_where_nothing_was(compared, wrong):
    estimate, low, high = wrong_among(bands(*compared), np.array([20, 0]), bands(0, 10))
    assert wrong[0] < estimate < wrong[1]
    assert low <= estimate <= high


@pytest.mark.parametrize("wrong_answers", [0, 0.05])
@pytest.mark.parametrize("planned", [60, 168, 3000])
@pytest.mark.parametrize("answered", [30, 50])
def test_the_interval_of_an_audit_holds_in_nineteen_of_twenty_draws(planned, answered, wrong_answers):
    """Over all shares of wrong owners, and never in less than 85 of 100 draws of one."""
    chance = np.random.default_rng(7)
    held = []
    for part in (0.02, 0.05, 0.1, 0.2, 0.35, 0.5):
        truth = round(part * planned)
        drawn = chance.hypergeometric(truth, planned - truth, answered, 400)
        wrong = chance.binomial(drawn, 1 - wrong_answers) + chance.binomial(answered - drawn, wrong_answers)
        contradicted = chance.binomial(5, 2 * wrong_answers * (1 - wrong_answers), 400)
        ends = [
            wrong_by_audit(answered, no, twice=AskedTwice(5, twice), drawn_from=planned, to_write=planned)[1:]
            for no, twice in zip(wrong.tolist(), contradicted.tolist(), strict=True)
        ]
        held.append(np.mean([low <= truth <= high for low, high in ends]))
    assert min(held) >= 0.85
    assert np.mean(held) >= 0.94


def test_hosts_asked_twice_tell_how_many_answers_are_wrong():
    rates = [AskedTwice(5, contradicted).rate() for contradicted in range(4)]
    assert rates == sorted(rates)
    assert rates[0] < 0.03
    assert rates[2] > 0.05
    assert least_right_percent(50) == 94


@pytest.mark.parametrize(
    ("shift", "least", "most"), [((0, 0), 0.07, 0.13), ((0.8, 0), 0.9, 1), ((0.5, 0.5), 0.9, 1)]
)
def test_samples_that_differ_are_told_apart_and_one_of_ten_of_those_that_do_not(shift, least, most):
    chance, chosen, traits_found = np.random.default_rng(7), np.arange(200) < 40, []
    for _ in range(1000):
        # The third trait is always the same, and the fourth follows from others.
        first, second = chance.normal(size=(2, 200)) + np.outer(shift, chosen)
        traits = np.column_stack([first, second, np.ones(200), first - second])
        traits_found.append(most_biased_trait(traits, chosen, level=0.1))
    assert least <= np.mean([trait is not None for trait in traits_found]) <= most
    if shift[0] > shift[1]:
        assert max(set(traits_found), key=traits_found.count) == 0
