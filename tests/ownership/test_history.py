from datetime import timedelta
from functools import cache
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownership.declaration import empty, validated
from ownership.history import (
    changed_decisions,
    current_owners,
    latest,
    with_conflict_since,
    with_new_conflicts,
)
from ownership.rules import Rules
from ownership.tables import AcknowledgedConflicts, CurrentOwners, OwnerDecisionsHistory
from tests import examples
from tests.ownership.builders import DAY, NOW, PEOPLE, counts, decide, host, hosts, user, users
from tests.resources.writeback.world import plan, values

NOTHING = empty(OwnerDecisionsHistory)
KNOWN = users(user("u1", email="alice@corp.example"), user("u2", email="bob@corp.example", surname="Kim"))
WS1, WS2 = host("h1", "ws1"), host("h2", "ws2", owners=("u2",))
ASSETS = hosts(WS1, WS2)
LOGONS = counts(("ws1", "alice", 5), ("ws2", "alice", 3), ("ws2", "bob", 3), ("ws3", "kim", 4))


@cache
def decisions() -> pl.DataFrame:
    return decide(LOGONS, KNOWN, ASSETS)


def changes(before: pl.DataFrame, decisions: pl.DataFrame, *, days: int = 0) -> pl.DataFrame:
    """The changes of a run so many days after the first one."""
    at = NOW + timedelta(days=days)
    decisions = decisions.with_columns(
        decided_at=pl.lit(at, pl.Datetime("us", "UTC")), run_id=pl.lit(str(days))
    )
    return changed_decisions(before, decisions, decided_at=at, run_id=str(days))


def hosts_of(history: pl.DataFrame) -> list[tuple[str, str]]:
    return history.select("hostname", "action").rows()


BOBS = LOGONS.with_columns(pl.col("document_username").replace({"alice": "bob"}))
OTHER_KIM = users(
    user("u1", email="alice@corp.example"), user("u9", email="bob@corp.example"), user("u3", surname="Kim")
)
CHANGES: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "other counts": (
        {"logons": counts(("ws1", "alice", 9), ("ws2", "alice", 4), ("ws2", "bob", 4), ("ws3", "kim", 1))},
        [],
    ),
    "another who comes first where nobody is primary": (
        {"logons": counts(("ws1", "alice", 5), ("ws2", "alice", 3), ("ws2", "bob", 4), ("ws3", "kim", 4))},
        [],
    ),
    "another department": ({"assets": hosts(host("h1", "ws1", department="Sales"), WS2)}, []),
    "another primary user": ({"logons": BOBS}, [("ws1", "write"), ("ws2", "agree")]),
    "another user asset for a name": ({"people": OTHER_KIM}, [("ws3", "no_host")]),
    "unreadable": ({"assets": hosts(WS1 | {"owner_ids": None, "problem": "x"}, WS2)}, [("ws1", "none")]),
    "another owner": ({"assets": hosts(WS1, host("h2", "ws2", owners=("u1",)))}, [("ws2", "keep")]),
    "no logons any more": ({"logons": counts(("ws1", "alice", 5), ("ws3", "kim", 4))}, [("ws2", "keep")]),
    "no user asset any more": ({"people": users(user("u2", surname="Kim"))}, [("ws1", "none")]),
    "another name": ({"assets": hosts(WS1, host("h2", "ws9", "ws2", owners=("u2",)))}, [("ws9", "keep")]),
    "another asset": ({"assets": hosts(host("h5", "ws1"), WS2)}, [("ws1", "gone"), ("ws1", "write")]),
    "host and logons are gone": (
        {"logons": counts(("ws1", "alice", 5)), "assets": hosts(WS1)},
        [("ws2", "gone"), ("ws3", "gone")],
    ),
}


@pytest.mark.parametrize("story", CHANGES)
def test_only_what_a_reader_would_call_another_decision_makes_a_row(story):
    now, expected = CHANGES[story]
    first = changes(NOTHING, decisions())
    then = decide(now.get("logons", LOGONS), now.get("people", KNOWN), now.get("assets", ASSETS))
    second = validated(OwnerDecisionsHistory, changes(latest(first.lazy()), then, days=1))
    assert sorted(hosts_of(second)) == expected
    assert set(second.select("run_id", "decided_at").rows()) <= {("1", NOW + timedelta(days=1))}
    assert changes(latest(pl.concat([first, second]).lazy()), then, days=2).is_empty()


def test_a_host_excluded_by_name_makes_a_row_when_logons_begin():
    """The evidence stays `excluded_host`, but the funnel counts hosts with logons."""
    rules, assets = Rules(exclude_hosts=("ws1",)), hosts(WS1)
    idle, used = (decide(logons, KNOWN, assets, rules) for logons in (counts(), counts(("ws1", "alice", 1))))
    assert hosts_of(changes(changes(NOTHING, idle), used, days=1)) == [("ws1", "none")]


def test_a_row_of_what_is_gone_repeats_what_was_known_last():
    first = changes(NOTHING, decisions())
    gone = changes(first, decisions().clear(), days=7)
    kept = [name for name in gone.columns if name not in {"action", "decided_at", "run_id"}]
    assert gone.select(kept).equals(first.select(kept))


NAMES = ("ws1", "ws2", "ws3")
STATES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["alice", "bob", "nobody"]))


@cache
def named(username: str) -> pl.DataFrame:
    """Decisions where this user has all logons."""
    assets = hosts(*(host(name, name) for name in NAMES))
    return decide(counts(*((name, username, 5) for name in NAMES)), KNOWN, assets)


@examples(10)
@given(st.lists(STATES, min_size=1, max_size=5), st.integers(0, 5))
def test_every_state_can_be_told_from_the_changes(runs, forgotten):
    """In whatever order they lie, and also when what is older than the state after some run is forgotten."""
    history = NOTHING
    for number, state in enumerate(runs):
        rows = [named(username).filter(hostname=name) for name, username in sorted(state.items())]
        decided = pl.concat([decisions().clear(), *rows])
        history = pl.concat([changes(latest(history.lazy()), decided, days=number), history])
        if number == forgotten:
            history = latest(history.lazy())
        found = latest(history.lazy()).sort("hostname").drop("decided_at", "run_id")
        assert found.equals(decided.drop("decided_at", "run_id"))


def test_a_conflict_is_new_with_another_host_or_another_person():
    people = users(user("u1", "alice@corp.example"), user("u2", "bob@corp.example"))
    assets = hosts(host("h1", "ws1", owners=("u9",)), host("h2", "ws2", owners=("u9",)), host("h3", "ws3"))
    before = decide(counts(("ws1", "alice", 1)), people, assets)
    same = decide(counts(("ws1", "alice", 9), ("ws3", "bob", 1)), people, assets)
    more = decide(counts(("ws1", "alice", 1), ("ws2", "alice", 1)), people, assets)
    other = decide(counts(("ws1", "bob", 1)), people, assets)

    def new(decisions, before):
        marked = with_new_conflicts(decisions, before, empty(AcknowledgedConflicts)).filter("new_conflict")
        return marked.select("hostname", "host_id", "existing_owner", "resolved_owner").rows()

    assert new(same, before) == []
    assert new(more, before) == [("ws2", "h2", "u9", "u1")]
    assert new(other, before) == [("ws1", "h1", "u9", "u2")]
    assert new(before, before.clear()) == [("ws1", "h1", "u9", "u1")]


def test_a_conflict_is_as_old_as_the_day_on_which_the_host_changed_hands():
    """As far as stored days tell it, or the first run that found it."""
    first, second, third, fourth = (DAY + timedelta(days=number) for number in range(4))
    logons = counts(
        *(("passed-on", "bob", 5, first), ("passed-on", "alice", 4, first)),
        *(("passed-on", "alice", 6, third), ("passed-on", "alice", 1, fourth)),
        *(("always", "alice", 5, first), ("always", "alice", 5, fourth)),
        *(("lent", "alice", 5, second), ("lent", "bob", 1, fourth)),
    )
    names = ("always", "lent", "passed-on")
    conflicts = decide(logons, KNOWN, hosts(*(host(name, name, owners=("u3",)) for name in names)))
    assert conflicts["action"].to_list() == ["conflict"] * 3

    def since(*earlier: pl.DataFrame) -> list[Any]:
        return (
            with_conflict_since(conflicts, conflicts.clear(), *earlier)["conflict_since"].dt.date().to_list()
        )

    assert since() == [NOW.date(), NOW.date(), third]
    before = conflicts.with_columns(conflict_since=pl.col("decided_at") - timedelta(days=2))
    assert since(before) == [NOW.date() - timedelta(days=2)] * 2 + [
        min(third, NOW.date() - timedelta(days=2))
    ]


# Who owns a host now: the last of what the inventory listed, and what runs wrote, undid and saw since


def instant(day, **later):
    return NOW + timedelta(days=day, **later)


def listed(day, *owners, **changes):
    """What the inventory lists so many days after the first run."""
    return hosts({"listed_at": instant(day)} | host("h1", "PC-1", "pc-one", owners=owners) | changes)


def met(day, outcome, held, sent=None, **changes):
    """A run read the host that day, which held this, and sent what `sent` says."""
    changes |= {"outcome": outcome, "completed_at": instant(day, minutes=1)}
    return plan("h1", run_id=f"run-{day}", old=held, new=sent or values(""), **changes)


def wrote(day, outcome="written", owner="u1", department="Sales"):
    return met(day, outcome, values(), values(owner, department))


def owners_after(assets, *writes):
    found = current_owners(assets, PEOPLE, pl.concat([plan(), *writes]).lazy())
    return validated(CurrentOwners, found).row(0, named=True)


THEIRS = ("inventory", None, None)
FORGOTTEN = "forgotten-0123456789abcdef"
IN_PART = {"owner": None, "department": None, "criticality": ""}
NOT_WRITTEN = ("failed", "intended", "not_written", "owned_meanwhile", "planned")
OURS = ("asset-owners", instant(0, minutes=1), "run-0")


@pytest.mark.parametrize(
    ("assets", "writes", "owner_ids", "origin"),
    [
        (listed(0), [], [], THEIRS),
        (listed(0), [wrote(0)], ["u1"], OURS),
        (listed(1, "u1"), [wrote(0)], ["u1"], OURS),
        (listed(1, "u2"), [wrote(0)], ["u2"], THEIRS),
        (
            listed(0),
            [wrote(0), wrote(1, "undone", "", "Store")],
            [],
            ("asset-owners", instant(1, minutes=1), "run-1"),
        ),
        (listed(0), [wrote(*one) for one in enumerate(NOT_WRITTEN)], [], THEIRS),
        (listed(1, owner_ids=None, problem="a dict"), [], None, THEIRS),
        (listed(0), [wrote(0), met(1, "undone", values("u3", "Legal"), IN_PART)], ["u3"], THEIRS),
        (listed(0), [wrote(0), met(1, "undone", values(None, "Legal"), IN_PART)], [], THEIRS),
        (listed(0), [wrote(0), met(1, "undone", values("u1,u3", "Legal"), IN_PART)], ["u1", "u3"], OURS),
        (listed(0), [wrote(0), met(1, "not_written", values("u3"), kept=["owner"])], ["u3"], THEIRS),
        (listed(0), [wrote(0), met(1, "not_written", values("u3"), message="unchanged")], ["u1"], OURS),
        (listed(0), [met(1, "owned_meanwhile", values("u3", "Legal"))], ["u3"], THEIRS),
        (listed(0), [met(1, "owned_meanwhile", values("CN=a%2COU=b,u3"))], ["CN=a,OU=b", "u3"], THEIRS),
        (listed(0), [wrote(0, owner="CN=a,OU=b")], ["CN=a,OU=b"], OURS),
        (listed(0), [wrote(0, owner=FORGOTTEN)], [FORGOTTEN], THEIRS),
        (listed(2, "u2"), [wrote(0), met(1, "undone", values("u3"), IN_PART)], ["u2"], THEIRS),
    ],
)
def test_the_owner_is_the_one_that_was_listed_written_or_seen_last(assets, writes, owner_ids, origin):
    found = owners_after(assets, *writes)
    assert (found["owner_ids"], (found["source"], found["since"], found["run_id"])) == (owner_ids, origin)


def test_a_host_has_its_first_name_the_department_that_was_written_and_its_owners_addresses():
    found = owners_after(listed(0, department="Store"), wrote(0))
    names = ("hostname", "department", "owner_emails")
    assert [found[name] for name in names] == ["pc-1", "Sales", ["ann@corp.example"]]
    found = owners_after(listed(0, "u2", "u1", "u9"))
    assert found["owner_emails"] == ["ann@corp.example", "bob@corp.example"]
