"""What is settled of runs that were cut off, and which hosts are skipped of plans that were overtaken."""

from datetime import timedelta
from typing import Any

import polars as pl
import pytest

from ownership.declaration import validated
from ownership.tables import OwnerWrites
from resources.errors import AuthenticationError, TransientError
from resources.ledger.ledger import Ledger, Result
from resources.writeback.decide import settle_leftovers, without_changed_hosts
from tests.ownership.builders import hosts
from tests.resources.writeback.world import IN_MEMORY, NOON, UNDONE, WRITTEN, forever, holding, plan, values

DEPARTMENT_UNDONE = {"old": values("u-2", "Sales"), "new": values(None, "Old")}


def intend(ledger, *host_ids, sent=True, **changes):
    """What a run leaves that is cut off while it writes these hosts."""
    ledger.intend(plan(*host_ids, outcome="intended", **changes))
    for host_id in host_ids if sent else ():
        ledger.mark_attempted(changes.get("run_id", "run-1"), host_id)


def settled(ledger, *listed, inventory: Any = None, others=()):
    """How many writes of run-1 are settled, given those of `others`, and its rows by host."""
    writes = pl.concat([plan(), *others]).lazy()
    number = settle_leftovers(ledger, "run-1", hosts(*listed), inventory, writes)
    return number, {row["host_id"]: row for row in ledger.rows("owner_writes", "run-1").iter_rows(named=True)}


@pytest.mark.parametrize(
    ("sent", "held", "outcome"),
    [
        (WRITTEN, holding("h-0", None, "Old"), "not_written"),
        (WRITTEN, holding("h-0", "u-2"), "not_written"),
        (WRITTEN, holding("h-0", "u-1", "Sales"), "written"),
        (WRITTEN, holding("h-0", "u-2,u-1"), "written"),
        (WRITTEN, holding("h-0", "u-1", "changed since"), "written"),
        (WRITTEN, holding("h-0", "u-1", hostnames=["PC-0.corp.example"]), "written"),  # compared otherwise
        (WRITTEN, holding("h-0", "u-1", hostnames=["PC-9"]), "written"),
        (WRITTEN, holding("h-0", None, hostnames=["PC-9"]), "not_written"),
        (UNDONE, holding("h-0", "u-1", "Sales"), "not_written"),
        (UNDONE, holding("h-0", "u-2", "changed, too"), "not_written"),
        (UNDONE, holding("h-0", None, "Old"), "undone"),
        (UNDONE, holding("h-0", "u-2", "Old"), "undone"),
        # A new machine under the id holds nothing of what was written: no sign of an undo.
        (UNDONE, holding("h-0", None, "Old", hostnames=["PC-9"]), "not_written"),
        (DEPARTMENT_UNDONE, holding("h-0", "u-2", "Sales"), "not_written"),
        (DEPARTMENT_UNDONE, holding("h-0", "u-2", "Old"), "undone"),
    ],
)
def test_what_was_sent_when_a_run_was_cut_off_is_settled_by_what_the_host_holds(sent, held, outcome):
    with Ledger(IN_MEMORY) as ledger:
        intend(ledger, "h-0", **WRITTEN)
        kept = ["owner"] if sent is DEPARTMENT_UNDONE else None
        ledger.complete(Result("h-0", "intended", None, sent["old"], sent["new"], kept), run_id="run-1")
        number, rows = settled(ledger, held)
    stored = rows["h-0"]
    assert (number, stored["outcome"]) == (1, outcome)
    assert (stored["old_values"], stored["new_values"]) == (sent["old"], sent["new"])
    assert stored["kept"] == (kept if outcome == "undone" else None)
    assert ("another name" in stored["message"]) == (held["hostnames"] == ["PC-9"])


def test_a_write_on_a_host_that_the_list_lacks_is_settled_by_reading_the_host(inventory, ledger):
    """A list may be empty for a moment: that says nothing of what was written."""
    intend(ledger, "h-0", "h-1", "h-404", "h-5")
    inventory.set("h-0", owner="u-1")
    inventory.reads_single_hosts = False
    assert settled(ledger, inventory=inventory)[0] == 0, "they stay pending where no host can be read"
    inventory.reads_single_hosts = True
    inventory.rows["h-5"]["problem"] = "its owner cannot be read"

    def read(host_id):
        if host_id == "h-1":
            raise TransientError("down")

    inventory.on_read = read
    number, rows = settled(ledger, inventory.rows["h-5"], inventory=inventory)
    assert number == 2
    found = {host_id: stored["outcome"] for host_id, stored in rows.items()}
    assert found == {"h-0": "written", "h-1": "intended", "h-404": "not_written", "h-5": "intended"}
    assert rows["h-404"]["message"] == "the run was cut off; the inventory no longer has the host"


def test_a_log_in_that_fails_settles_nothing(inventory, ledger):
    inventory.on_read = forever(AuthenticationError("No."))
    intend(ledger, "h-0")
    with pytest.raises(AuthenticationError):
        settled(ledger, inventory=inventory)


def test_a_lost_answer_is_still_named_when_the_write_is_settled(ledger):
    intend(ledger, "h-0", "h-1")
    for host_id in ("h-0", "h-1"):
        ledger.complete(Result(host_id, "intended", "Reset."), run_id="run-1", completed_at=NOON)
    number, rows = settled(ledger, holding("h-0", "u-1"), holding("h-1"))
    assert (number, [row["outcome"] for row in rows.values()]) == (2, ["written", "not_written"])
    assert all(row["message"].startswith("Reset.") for row in rows.values())


@pytest.mark.parametrize("power_lost", [False, True])
def test_a_host_that_was_sent_nothing_was_not_written_whoever_gave_it_the_owner(
    ledger, monkeypatch, power_lost
):
    """After a loss of power the inventory alone counts: what was sent is not on disk immediately."""
    intend(ledger, "h-0", "h-1", sent=False)
    if power_lost:
        monkeypatch.setattr(ledger, "_boot", lambda: "the next start")
    number, rows = settled(ledger, holding("h-0", "u-1"), holding("h-1"))
    expected = ["written" if power_lost else "not_written", "not_written"]
    assert (number, [row["outcome"] for row in rows.values()]) == (2, expected)


@pytest.mark.parametrize(
    ("sent", "held", "hours", "outcome"),
    [
        (WRITTEN, holding("h-0", "u-1"), 1, "not_written"),
        (WRITTEN, holding("h-0", "u-1"), -1, "written"),
        (UNDONE, holding("h-0", "u-2", "Old"), 1, "undone"),  # the other run has met a host without an owner
    ],
    ids=["since", "before", "since the undo"],
)
def test_what_another_run_has_written_since_is_not_taken_for_the_lost_write(
    ledger, sent, held, hours, outcome
):
    """That one read the host, and saw none of it; an undo of this run would take the other's owner away."""
    other = plan("h-0", run_id="run-2", outcome="written", completed_at=NOON + timedelta(hours=hours))
    intend(ledger, "h-0", **sent)
    _, rows = settled(ledger, held, others=[other])
    assert rows["h-0"]["outcome"] == outcome
    assert ("run-2" in rows["h-0"]["message"]) == (outcome == "not_written")


@pytest.mark.parametrize(
    ("planned", "held", "outcome"),
    [
        (WRITTEN, holding("h-0", "u-1", "Sales"), "owned_meanwhile"),
        (WRITTEN, holding("h-0", None, "Old"), "planned"),
        (WRITTEN, holding("h-0", "u-1", problem="odd"), "planned"),  # left to the reading
        (WRITTEN, holding("h-1", "u-1"), "not_written"),  # gone
        (WRITTEN, holding("h-0", hostnames=["PC-9"]), "not_written"),  # another machine
        (UNDONE, holding("h-0", "u-1", "Sales"), "planned"),
        (UNDONE, holding("h-0", "u-2", "Sales"), "planned"),
        (UNDONE, holding("h-0", None, "Old"), "not_written"),
        (UNDONE, holding("h-0", "u-2", "Other"), "not_written"),
    ],
)
def test_what_others_have_done_before_a_plan_is_applied_is_not_tried(planned, held, outcome):
    left = without_changed_hosts(plan("h-0", **planned), hosts(held))
    assert left["outcome"].to_list() == [outcome]
    assert (left["completed_at"].null_count() == 0) == (outcome != "planned")
    assert validated(OwnerWrites, left).height == 1
    done = plan("h-0", outcome="failed", completed_at=NOON)
    assert without_changed_hosts(done, hosts(held)).equals(done)
