"""Companies that live, and what is right after a month of nights in them."""

from datetime import UTC, datetime

import pytest

from bench.month import AFTER_MOVES, MOVES, POLICIES, draw, draws, summary
from sandbox.lives import BY_NIGHT, FIRST_NIGHT, IN_ONE_RUN, days_until, live

RECOMMENDED = next(name for name in POLICIES if "recommended" in name)
DAYS = days_until(FIRST_NIGHT, 89)
FIRST = 59
"""The day on which the first run begins."""


@pytest.mark.parametrize(
    ("company", "persons"), [(BY_NIGHT["shrinking"], {1, 2, 3}), (IN_ONE_RUN["reorganised"], {1, 2})]
)
def test_a_company_is_the_same_for_a_seed_and_its_machines_change_hands(company, persons):
    life, again, other = (live(company, seed, DAYS) for seed in (1, 1, 2))
    assert (life.counts, life.owners) == (again.counts, again.owners) != (other.counts, other.owners)
    assert len(life.owners) == sum(company.machines.values())
    later = {host: owners[FIRST:] for host, owners in life.owners.items()}
    assert {len(set(owners)) for owners in later.values()} >= persons
    owned = [(life.owners[host][day], person) for day, host, person in life.counts if life.owners[host][day]]
    assert sum(owner == person for owner, person in owned) > 0.9 * len(owned)
    former = {host for host in life.owners if life.former(host)}
    assert former == {host for host, owners in life.owners.items() if {*owners} - {None, owners[-1]}}


def test_a_quarter_of_the_people_move_in_a_wave():
    company = BY_NIGHT["office"]
    quiet, moved = (live(company, 3, DAYS, moves=moves) for moves in (None, FIRST + 5))
    others = [host for host, owners in quiet.owners.items() if owners != moved.owners[host]]
    owned = [owners[FIRST + 5] for owners in quiet.owners.values()]
    assert len(others) == (len(owned) - owned.count(None)) // 4


def test_what_is_written_once_is_never_written_again():
    night = draw("office", 1, nights=2, policies={"recommended": POLICIES[RECOMMENDED]})["recommended"]
    assert 0 < night["later"] < night["written"] <= sum(BY_NIGHT["office"].machines.values())
    assert night["later right"] <= night["right"] <= night["written"]


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_owners_that_stay_are_more_often_right_whatever_the_companies(record_property):
    """What docs/tuning.md says, on companies of the day's seed, with room for chance."""
    seed = datetime.now(UTC).toordinal()
    record_property("seed", seed)
    found = draws([seed, seed + 1], nights=30)
    specified, stricter, recommended, sure = (
        summary([each[name] for each in found])
        for name in (
            *("as specified, 30 days", "stricter rules, 60 days"),
            *(RECOMMENDED, "recommended, confidence of 80"),
        )
    )
    assert recommended["right"] > max(stricter["right"], specified["right"] + 10)
    assert recommended["right of later nights"] > stricter["right of later nights"]
    assert recommended["found"] > stricter["found"] - 12
    assert sure["right"] > 96
    assert sure["right in the worst tenth of draws"] > 92
    assert sure["found"] > 76
    assert sure["said"] == pytest.approx(sure["right"], abs=3)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_wave_of_moves_leaves_fewer_former_users(record_property):
    seed = datetime.now(UTC).toordinal()
    record_property("seed", seed)
    found = draws([seed, seed + 1], nights=30, policies=AFTER_MOVES, moves=MOVES)
    unseen, seen = (summary([each[name] for each in found]) for name in AFTER_MOVES)
    assert seen["right of later nights"] > unseen["right of later nights"]
