import pytest

from tests.ownership.builders import NOW, RUN, TARGET, counts, decide, host, hosts, plan, user, users

LOGONS = counts(*((name, "alice", 5) for name in ("ws1", "ws2", "ws3", "lost")), ("ws4", "carol", 5))
PEOPLE = users(user("u1", email="alice@corp.example", user_department="Sales", criticality="high"))
ASSETS = hosts(
    host("h2", "ws2", department="IT", criticality="low"),
    host("h1", "ws1"),
    host("h3", "ws3", owners=("u9",)),
    host("h4", "ws4"),
)


def planned(people=PEOPLE, assets=ASSETS, **options):
    return plan(decide(LOGONS, people, assets), people, assets, **options).rows(named=True)


def test_only_hosts_to_be_written_are_planned_with_what_they_held():
    nothing = {"owner": None, "department": None, "criticality": None}
    common = {
        "run_id": RUN,
        "outcome": "planned",
        "new_values": {"owner": "u1", "department": "Sales", "criticality": "high"},
        "message": None,
        "intended_at": NOW,
        "completed_at": None,
        "target": TARGET,
    }
    assert planned() == [
        common | {"host_id": "h1", "hostname": "ws1", "old_values": nothing},
        common
        | {
            "host_id": "h2",
            "hostname": "ws2",
            "old_values": nothing | {"department": "IT", "criticality": "low"},
        },
    ]


def test_without_enrichment_only_the_owner_is_sent():
    """§1 rule 10."""
    assert {tuple(write["new_values"].values()) for write in planned(enrich=False)} == {("u1", None, None)}


@pytest.mark.parametrize("empty", [None, "", "  "])
def test_empty_values_are_not_copied(empty):
    """Readings §2.6."""
    person = user("u1", email="alice@corp.example", criticality="high") | {"user_department": empty}
    assert {tuple(write["new_values"].values()) for write in planned(users(person))} == {("u1", None, "high")}


def test_nothing_to_write_is_an_empty_plan():
    assert planned(assets=hosts()) == []
