"""Who owns a host now: the last of what the inventory listed, and what runs wrote, undid and saw since."""

from datetime import timedelta

import polars as pl
import pytest

from ownership.declaration import validated
from ownership.history import current_owners
from ownership.tables import CurrentOwners
from tests.ownership.builders import NOW, host, hosts, user, users
from tests.resources.writeback.world import plan, values

PEOPLE = users(user("u1", email="ann@corp.example"), user("u2", email="bob@corp.example"))


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
        (
            listed(2, "u2"),
            [wrote(0), met(1, "undone", values("u3"), IN_PART)],
            ["u2"],
            THEIRS,
        ),
    ],
)
def test_the_owner_is_the_one_that_was_listed_written_or_seen_last(assets, writes, owner_ids, origin):
    found = owners_after(assets, *writes)
    assert (found["owner_ids"], (found["source"], found["since"], found["run_id"])) == (owner_ids, origin)


def test_a_host_has_its_first_name_the_department_that_was_written_and_its_owners_addresses():
    found = owners_after(listed(0, department="Store"), wrote(0))
    names = ("hostname", "department", "owner_emails")
    assert [found[name] for name in names] == ["PC-1", "Sales", ["ann@corp.example"]]
    found = owners_after(listed(0, "u2", "u1", "u9"))
    assert found["owner_emails"] == ["ann@corp.example", "bob@corp.example"]
