"""One host read and written, and all hosts of a plan, by an inventory and a clock in memory."""

import threading
import time
from collections import Counter
from itertools import count

import polars as pl
import pytest

from ownership.declaration import validated
from ownership.plan import plan_undo
from ownership.tables import OwnerWrites
from resources.errors import (
    AssetOwnersError,
    AuthenticationError,
    PermissionDeniedError,
    RunEndedError,
    ServiceError,
    TransientError,
    ValidationError,
)
from resources.ledger.ledger import Ledger
from resources.writeback import workers
from resources.writeback.decide import decide_apply, decide_undo, decide_write
from resources.writeback.writer import (
    FASTER,
    GIVE_UP_SECONDS,
    MAX_READS,
    MAX_WAIT_SECONDS,
    MIN_INTERVAL_SECONDS,
    Pace,
    Writer,
)
from tests.ownership.builders import TARGET
from tests.resources.writeback.world import (
    BUSY,
    CUT,
    IN_MEMORY,
    NOON,
    SIGN_IN,
    SLOW,
    UNDONE,
    WRITTEN,
    FakeInventory,
    forever,
    numbered,
    outcomes,
    plan,
    row,
    values,
    write_plan,
)

NO = ServiceError("No.")


@pytest.fixture
def ledger():
    with Ledger(IN_MEMORY) as ledger:
        yield ledger


def raising(*errors, meanwhile=lambda _: None):
    """A hook that raises these, one a call, and then lets pass what is sent; `meanwhile` others act."""
    left = list(errors)

    def hook(host_id, sent=None):
        if left and (error := left.pop(0)):
            meanwhile(host_id)
            raise error
        return sent

    return hook


def undo_row():
    """The row that undoes what `row()` wrote."""
    written = plan("h-0").with_columns(outcome=pl.lit("written"))
    return plan_undo(written, plan(), run_id="run-2", target=TARGET, intended_at=NOON).row(0, named=True)


# One host, read and written


@pytest.mark.parametrize(
    ("takes", "sent"),
    [
        (("owner", "department", "criticality"), {"owner": "u-1", "criticality": "high"}),
        (("owner",), {"owner": "u-1"}),
    ],
)
def test_a_host_is_read_and_written_in_one_request(inventory, writer, takes, sent):
    inventory.takes = takes
    result = writer.write(row(new=values("u-1", None, "high")))
    assert (result.outcome, result.message) == ("written", None)
    assert (result.old_values, result.new_values) == (WRITTEN["old"], values() | sent)
    assert (inventory.done, inventory.asked) == ([("h-0", sent)], (2, 1)), "the first writes are read back"
    assert 0 <= writer.longest_read_to_write_seconds <= 1


@pytest.mark.parametrize("owner", ["u-2", "u-2,u-1", "u-1", "someone"])
def test_a_host_owned_meanwhile_is_skipped(inventory, writer, owner):
    inventory.set("h-0", owner=owner)
    result = writer.write(row())
    assert (result.outcome, result.old_values) == ("owned_meanwhile", values(owner, "Old"))
    assert (inventory.holds(), inventory.asked) == ((owner, "Old", None), (1, 0))


@pytest.mark.parametrize(
    ("hook", "error", "asked"),
    [
        ("on_write", ValidationError("No user."), (1, 1)),
        ("on_write", PermissionDeniedError("Not you."), (1, 1)),
        ("on_write", NO, (1, 1)),
        ("on_read", NO, (1, 0)),
        ("on_read", TransientError("HTTP status 503"), (1, 0)),
    ],
)
def test_a_refusal_is_failed_with_its_words(inventory, writer, hook, error, asked):
    setattr(inventory, hook, forever(error))
    result = writer.write(row())
    assert (result.outcome, result.message, inventory.asked) == ("failed", str(error), asked)


@pytest.mark.parametrize(
    ("host_id", "changes", "outcome"),
    [
        ("h-0", {"problem": "asset_owner holds a dict"}, "failed"),
        ("h-0", {"hostnames": ["PC-77"]}, "not_written"),
        ("h-0", {"hostnames": ["renamed", "PC-0"]}, "written"),
        ("h-404", {}, "failed"),
    ],
)
def test_a_host_that_was_made_anew_under_its_id_is_skipped(inventory, writer, host_id, changes, outcome):
    """A host is its id and its name; one that is gone, or cannot be read, is left alone as well."""
    inventory.rows["h-0"] |= changes
    result = writer.write(row(host_id))
    assert (result.outcome, inventory.calls["write"]) == (outcome, outcome == "written")
    assert outcome == "written" or "PC-77" not in result.message


# Answers that are lost are read back and never sent again


@pytest.mark.parametrize("answer", [CUT, BUSY], ids=["cut", "busy"])
class TestLostAnswers:
    def test_a_write_that_was_done_is_confirmed(self, inventory, writer, answer):
        """Also of a service that spells values its own way: the owner counts."""
        inventory.on_write = lambda _, sent: sent | {"department": "SALES"}
        inventory.after_write = forever(answer)
        result = writer.write(row())
        assert (result.outcome, result.old_values) == ("written", WRITTEN["old"])
        assert str(answer) in result.message
        assert (inventory.holds(), inventory.asked) == (("u-1", "SALES", None), (2, 1))

    @pytest.mark.parametrize(
        ("first", "trouble"), [(None, None), ("u-2", None), ("u-1", TransientError("down"))]
    )
    def test_a_write_whose_end_is_not_known_stays_intended(
        self, inventory, writer, clock, answer, first, trouble
    ):
        """It may be done later than we read, and who came first is not known: the next run reads."""
        inventory.on_write = raising(answer, meanwhile=lambda host_id: inventory.set(host_id, owner=first))
        inventory.on_read = raising(None, trouble)
        result = writer.write(row())
        assert (result.outcome, result.old_values) == ("intended", WRITTEN["old"])
        assert (inventory.holds(), inventory.asked) == ((first, "Old", None), (2, 1))
        writer.write(row("h-1"))
        assert clock.now == (7 if answer is BUSY else 0), "all wait as the service asks"


# No write is sent twice: after a wait the host is read again


@pytest.mark.parametrize(
    ("answer", "waits"),
    [(SIGN_IN, 0), (SLOW, 1), (TransientError("Slow.", 30, not_done=True), 30)],
    ids=["401", "429", "429 for long"],
)
@pytest.mark.parametrize(
    ("then", "outcome", "asked"),
    [
        ({}, "written", (3, 2)),  # sent again, and read back
        ({"owner": "u-2"}, "owned_meanwhile", (2, 1)),
        ({"owner": "u-1"}, "written", (2, 1)),  # nobody can tell who did it
        ({"owner": "u-2,u-1"}, "written", (2, 1)),
        ({"hostnames": ["PC-77"]}, "intended", (2, 1)),
    ],
)
def test_after_a_session_that_expires_before_a_write_the_host_is_read_again(
    inventory, writer, clock, answer, waits, then, outcome, asked
):
    """So does a service that asks to wait; somebody may change the host meanwhile."""
    inventory.on_write = raising(answer, meanwhile=lambda host_id: inventory.set(host_id, **then))
    result = writer.write(row())
    assert result.outcome == outcome
    assert outcome != "written" or result.old_values == WRITTEN["old"], "what it held before, for an undo"
    assert inventory.asked == asked
    assert len(inventory.done) == (asked == (3, 2))
    assert clock.now >= waits


@pytest.mark.parametrize("answer", [SIGN_IN, SLOW], ids=["401", "429"])
def test_a_refusal_of_the_second_request_does_not_prove_that_the_first_was_not_done(
    inventory, writer, answer
):
    def late(host_id):
        if inventory.calls["write"] == 2:
            inventory.set(host_id, owner="u-1")

    inventory.on_write = raising(answer, NO, meanwhile=late)
    assert writer.write(row()).outcome == "written"


@pytest.mark.parametrize(
    ("answer", "sent", "least_seconds"), [(SIGN_IN, 2, 0), (SLOW, 16, 500)], ids=["401", "429"]
)
def test_a_service_that_turns_every_write_away_ends_the_writing(
    inventory, writer, ledger, clock, answer, sent, least_seconds
):
    inventory.on_write = forever(answer)
    assert write_plan(plan("h-0", "h-1"), writer, ledger)
    assert outcomes(ledger) == {"h-0": "intended", "h-1": "not_written"}, "h-0 was sent"
    assert inventory.asked == (sent, sent)
    assert least_seconds <= clock.now < least_seconds + 200


def test_a_service_with_a_limit_gets_all_writes_of_a_plan(inventory, writer, ledger, clock):
    """It takes ten writes a second and refuses the rest."""
    taken = []

    def limit(_, sent):
        if sum(at > clock.now - 1 for at in taken) >= 10:
            raise SLOW
        taken.append(clock.now)
        return sent

    inventory.on_write = limit
    assert write_plan(plan(*numbered(40)), writer, ledger, max_failed_writes=2) is None
    assert set(outcomes(ledger).values()) == {"written"}


@pytest.mark.parametrize(
    ("answer", "troubles", "outcome", "ended"),
    [
        (SIGN_IN, [SLOW], "written", False),
        (SIGN_IN, [SLOW] * 99, "intended", True),
        (SIGN_IN, [CUT], "intended", False),
        (SIGN_IN, [AuthenticationError("No.")], "intended", True),
        (None, [CUT, NO], "written", False),  # read back once more
        (None, [CUT] * 99, "intended", True),
        (None, [AuthenticationError("No.")], "intended", True),
    ],
)
def test_a_reading_that_fails_after_a_write_hides_nothing(
    inventory, writer, ledger, answer, troubles, outcome, ended
):
    inventory.after_write = raising(answer)
    inventory.on_read = raising(None, *troubles)
    assert bool(write_plan(plan("h-0"), writer, ledger)) == ended
    assert (outcomes(ledger), inventory.calls["write"]) == ({"h-0": outcome}, 1)


def test_a_host_that_waits_for_its_turn_was_surely_sent_nothing(inventory, ledger, clock):
    unsent = []

    def sleep(seconds):
        unsent.append(ledger.never_sent("run-1"))
        clock.sleep(seconds)

    writer = Writer(inventory, ledger, clock=clock, sleep=sleep)
    writer.pace.slow_down(turn=0.0, retry_after=30)
    assert write_plan(plan("h-0"), writer, ledger) is None
    assert unsent
    assert all(hosts == {"h-0"} for hosts in unsent)


@pytest.mark.parametrize(("sent", "outcome"), [(1, "intended"), (0, "not_written")])
def test_a_waiting_writer_sends_nothing_more_when_the_run_has_ended(inventory, ledger, clock, sent, outcome):
    writer = Writer(inventory, ledger, clock=clock, sleep=lambda _: writer.stop("it was interrupted"))
    inventory.on_write = forever(SLOW)
    if not sent:
        writer.pace.slow_down(turn=0.0, retry_after=30)
    assert writer.write(row()).outcome == outcome
    assert inventory.asked == (sent, sent)


def test_a_host_that_was_read_before_the_machine_was_suspended_is_read_again(inventory, ledger, monkeypatch):
    """The usual clock stands still meanwhile."""
    clocks = {time.CLOCK_BOOTTIME: 0.0, time.CLOCK_MONOTONIC: 0.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: clocks[time.CLOCK_MONOTONIC])

    def suspend(host_id):
        if inventory.calls["read"] == 1:
            clocks[time.CLOCK_BOOTTIME] += 3600
            inventory.set(host_id, owner="u-9")

    inventory.on_connect = suspend
    assert Writer(inventory, ledger).write(row()).outcome == "owned_meanwhile"


@pytest.mark.parametrize("slow", ["on_read", "complete", "on_connect"])
def test_a_host_is_read_again_once_the_reading_is_too_old(
    inventory, writer, ledger, clock, monkeypatch, slow
):
    """The time passes with the answer, on the disk or with the connection; somebody sets an owner."""
    stalls = []

    def stall(*_, **__):
        if not stalls:
            stalls.append(True)
            inventory.set("h-0", owner="u-2")
            clock.sleep(1.1)

    inventory.set("h-0", department="other than planned")
    monkeypatch.setattr(ledger if slow == "complete" else inventory, slow, stall)
    assert writer.write(row()).outcome == "owned_meanwhile"
    assert (inventory.asked, inventory.holds()[0]) == ((2, 0), "u-2")


@pytest.mark.parametrize(
    ("slow", "seconds", "outcome", "asked"),
    [
        ("on_connect", 0.9, "written", (2, 1)),
        ("on_read", 1.2, "written", (2 + 1 + 1, 1)),  # two readings in vain, a third one, and reading back
        ("on_connect", 1.1, "failed", (MAX_READS, 0)),
    ],
)
def test_a_request_within_a_second_of_the_reading_goes_out(
    inventory, writer, clock, slow, seconds, outcome, asked
):
    """Also where reading takes long; a machine that is always too slow does not write."""
    setattr(inventory, slow, lambda _: clock.sleep(seconds))
    assert (writer.write(row()).outcome, inventory.asked) == (outcome, asked)


def test_the_intention_is_stored_before_the_host_is_read(inventory, writer, ledger):
    ledger.intend(plan("h-0", outcome="intended"))
    unsent = []
    inventory.on_read = lambda _: unsent.append(ledger.never_sent("run-1"))
    writer.write(row())
    assert unsent[0] == set()


def test_the_ledger_knows_what_the_last_reading_showed(inventory, writer, ledger):
    """The first reading differs from the plan, the second does not, and then the run dies."""
    ledger.intend(plan("h-0", outcome="intended"))
    inventory.set("h-0", department="New")
    stored = []

    def changed_back(host_id):
        stored.append(ledger.rows("owner_writes", "run-1")["old_values"][0]["department"])
        inventory.set(host_id, department="Old")

    inventory.on_write = raising(SLOW, meanwhile=changed_back)
    inventory.after_write = changed_back
    assert writer.write(row()).outcome == "written"
    assert stored == ["New", "Old"]


# "Yes" is checked


@pytest.fixture(params=[True, False])
def read_or_listed(request, inventory):
    """Hosts can be read by themselves, or have to be listed; a writer that comes later knows."""
    inventory.reads_single_hosts = request.param


@pytest.mark.usefixtures("read_or_listed")
@pytest.mark.parametrize(("hosts", "sent"), [(10, 3), (1, 1)])
@pytest.mark.parametrize(
    ("change", "decide"), [(WRITTEN, decide_write), (UNDONE, decide_undo)], ids=["write", "undo"]
)
def test_a_service_that_says_yes_and_sets_no_owner_stops_the_writing(
    inventory, ledger, clock, change, decide, hosts, sent
):
    """It may set the other fields all the same. Nor may it hide owners, who would all be overwritten."""
    for host_id in numbered(hosts):
        inventory.set(host_id, **change["old"])
    inventory.on_write = lambda _, values: {"department": values["department"]}
    writer = Writer(inventory, ledger, clock=clock, sleep=clock.sleep)
    ended_by = write_plan(plan(*numbered(hosts), **change), writer, ledger, decide=decide, concurrency=8)
    assert ended_by
    assert inventory.how_written in ended_by
    assert inventory.calls["write"] == sent
    found = Counter(outcomes(ledger).values())
    assert found == Counter({"intended": sent, "not_written": hosts - sent}), "it may still be done"


UNSEEN = {
    "gives objects": lambda row: row | {"problem": "its field asset_owner holds a dict"},
    "spells the owner in its own way": lambda row: row | {"owner_ids": ["user:u-1"]},
    "may not be read": PermissionDeniedError("You may not read it."),
    "is out of order": TransientError("down"),
    "keeps what it held": lambda row: row | {"owner_ids": []},
}


@pytest.mark.usefixtures("read_or_listed")
@pytest.mark.parametrize("fault", UNSEEN.values(), ids=UNSEEN)
def test_a_run_whose_first_writes_are_not_seen_to_hold_stops_and_names_the_hosts(
    inventory, writer, ledger, clock, fault
):
    """Each of these was "written" on every host of the plan; the names of some were lost."""

    def spoil(host_id, sent):
        inventory.set(host_id, **sent)
        if callable(fault):
            inventory.rows[host_id] = fault(inventory.rows[host_id])
        return {}

    def refuse(host_id):
        if isinstance(fault, Exception) and inventory.rows[host_id]["owner_ids"]:
            raise fault

    inventory.on_write, inventory.on_read = spoil, refuse
    inventory.on_list = lambda: [refuse(host_id) for host_id in inventory.rows]
    ended_by = write_plan(plan(*numbered(10), new=values("u-1")), writer, ledger, concurrency=8)
    assert ended_by
    unseen = [host_id for host_id, outcome in outcomes(ledger).items() if outcome == "intended"]
    assert len(unseen) == inventory.calls["write"] == 3
    named = [f"{host_id} ({host_id.replace('h-', 'pc-')}): " for host_id in unseen]
    assert all(part in ended_by for part in (*named, "read_back_seconds", "10 s", inventory.how_written))
    assert list(outcomes(ledger).values()).count("not_written") == 7
    assert 30 <= clock.now < 40


def test_one_write_that_holds_is_enough_and_the_others_have_no_known_outcome(
    inventory, writer, ledger, caplog
):
    """Somebody may change a host right after its write, which says nothing about the service."""

    def meanwhile(host_id, sent):
        return sent | {"owner": "u-2"} if host_id in {"h-0", "h-2"} else sent

    inventory.on_write = meanwhile
    assert write_plan(plan(*numbered(5)), writer, ledger) is None
    assert list(outcomes(ledger).values()) == ["intended", "written", "intended", "written", "written"]
    assert [message[:9] for message in caplog.messages] == ["Host h-0:", "Host h-2:"]


ITEM = {"location": "Hall 3", "tags": ["a", "b"], "meta": {"floor": 3, "note": None}}
LOST = {
    "replaces the asset": ({"hostnames": []}, None, "hostnames"),
    "renames": ({"hostnames": ["PC-77"]}, None, "hostnames"),
    "clears an enriched field": ({"department": None}, ITEM, "department"),
    "clears fields": ({}, {"location": "", "tags": ["b"], "meta": {}}, "location, meta.floor, tags"),
    "sets defaults": ({}, ITEM | {"location": "?", "meta": {"floor": 0}}, "location, meta.floor"),
    "holds nothing": ({}, {}, "location, meta.floor, tags"),
}


@pytest.mark.usefixtures("read_or_listed")
@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
@pytest.mark.parametrize("undo", [False, True], ids=["write", "undo"])
def test_a_write_that_loses_what_was_not_sent_stops_the_writing_and_names_the_fields(
    inventory, ledger, clock, lost, undo
):
    changed, item, fields = lost
    for host_id in numbered(10):
        inventory.set(host_id, owner="u-1" if undo else None)
        inventory.others |= {host_id: ITEM} if item is not None else {}

    def lose(host_id):
        inventory.rows[host_id] |= changed
        inventory.others |= {host_id: item} if item is not None else {}

    inventory.after_write = lose
    writer = Writer(inventory, ledger, clock=clock, sleep=clock.sleep)
    old, new, decide = ("u-1", "", decide_undo) if undo else (None, "u-1", decide_write)
    planned = plan(*numbered(10), old=values(old), new=values(new))
    ended_by = write_plan(planned, writer, ledger, decide=decide, concurrency=8) or ""
    rows = ledger.rows("owner_writes", "run-1")
    [(outcome, message)] = rows.filter(pl.col("outcome") != "not_written").select("outcome", "message").rows()
    assert outcome == ("intended" if fields == "hostnames" else "undone" if undo else "written")
    assert all(f" gone or changed: {fields}" in str(text) for text in (message, ended_by))
    assert clock.now == 10, "it might come back"


@pytest.mark.parametrize("answer", [CUT, SIGN_IN])
@pytest.mark.parametrize("readings", [2, 9])
def test_so_does_one_whose_answer_was_lost(inventory, writer, ledger, answer, readings):
    """Also if the service is away after the reading that shows it."""

    def lose(host_id):
        inventory.others[host_id] = {}
        raise answer

    inventory.others, inventory.after_write = dict.fromkeys(numbered(5), ITEM), lose
    inventory.on_read = raising(*[None] * readings, *[CUT] * 9)
    assert "changed: location" in str(write_plan(plan(*numbered(5)), writer, ledger))
    assert [*outcomes(ledger).values()] == ["written", *["not_written"] * 4]


@pytest.mark.parametrize(
    ("shown", "readings", "lost"),
    [
        (["Hall 1", "Hall 2"], 9, False),  # another one in each reading
        ([None, "Hall 3"], 9, False),  # gone for a moment
        (["Hall 1"], 9, True),
        (["Hall 1"], 1, True),  # and then the service is away
    ],
)
def test_a_field_that_changes_without_a_write_is_not_lost(
    inventory, writer, ledger, caplog, shown, readings, lost
):
    def show(host_id):
        if inventory.calls["read"] > 1 + readings:
            raise CUT
        if inventory.calls["write"]:
            inventory.others[host_id] = {"location": shown.pop(0) if shown[1:] else shown[0]}

    inventory.others["h-0"] = {"location": "Hall 3"}
    inventory.after_write = inventory.on_read = show
    assert bool(write_plan(plan("h-0"), writer, ledger)) == lost == bool(caplog.messages)


IGNORED = {
    "three": (numbered(3), "Sales", True),
    "two": (numbered(2), "Sales", False),
    "one": (["h-1"], "Sales", False),
    "another case": (numbered(3), "OLD", False),
}


@pytest.mark.usefixtures("read_or_listed")
@pytest.mark.parametrize(("hosts", "sent", "ends"), IGNORED.values(), ids=IGNORED)
@pytest.mark.parametrize("undo", [False, True], ids=["write", "undo"])
def test_a_sent_field_that_keeps_its_old_value_is_said_and_three_of_the_first_end_the_writing(
    inventory, ledger, clock, caplog, hosts, sent, ends, undo
):
    for host_id in numbered(5):
        inventory.set(host_id, department="Old", owner="u-1" if undo else None)
    inventory.on_write = lambda host_id, sent: {"owner": sent["owner"]} if host_id in hosts else sent
    writer = Writer(inventory, ledger, clock=clock, sleep=clock.sleep)
    old, new, decide = ("u-1", "", decide_undo) if undo else (None, "u-1", decide_write)
    planned = plan(*numbered(5), old=values(old, "Old"), new=values(new, sent))
    ended_by = write_plan(planned, writer, ledger, decide=decide)
    assert bool(ended_by) == ends
    done, skipped = (
        "undone" if undo else "written",
        "not_written" if ends else "undone" if undo else "written",
    )
    assert [*outcomes(ledger).values()] == [done] * 3 + [skipped] * 2
    said = (
        "the service accepted the write, and then fields that were sent still had their old value: department"
    )
    ignored = hosts if sent == "Sales" else []
    found = dict(
        ledger.rows("owner_writes", "run-1").filter(outcome=done).select("host_id", "message").iter_rows()
    )
    assert {host_id for host_id, message in found.items() if message == said} == {*ignored}
    assert caplog.messages == [f"Host {host_id}: {said}" for host_id in ignored]
    assert not ended_by or inventory.how_written in ended_by


@pytest.mark.parametrize(("later", "allowed"), [(0.4, 10), (4, 10), (9.9, 10), (60, 90)])
def test_a_service_that_shows_a_change_later_is_believed(
    inventory, ledger, clock, monkeypatch, later, allowed
):
    shown_from = []

    def answer(_, sent):
        shown_from.append((clock.now + later, sent))
        return {}

    def host(host_id):
        if shown_from and clock.now >= shown_from[0][0]:
            inventory.set(host_id, **shown_from[0][1])
        return FakeInventory.host(inventory, host_id)

    inventory.on_write = answer
    monkeypatch.setattr(inventory, "host", host)
    writer = Writer(inventory, ledger, allowed, clock=clock, sleep=clock.sleep)
    assert writer.write(row()).outcome == "written"
    assert clock.now <= allowed


def test_an_interrupted_run_does_not_wait_for_a_change_to_show(inventory, ledger, clock):
    inventory.on_write = lambda *_: {}
    writer = Writer(inventory, ledger, 600, clock=clock, sleep=lambda _: writer.stop("it was interrupted"))
    assert writer.write(row()).outcome == "intended"
    assert inventory.asked == (3, 1)


def test_three_writes_are_read_back_and_no_more(inventory, writer, ledger):
    assert write_plan(plan(*numbered(20)), writer, ledger) is None
    assert inventory.asked == (20 + 3, 20)


@pytest.mark.parametrize(
    ("owners", "trouble", "shown"),
    [(["u-2", None], None, True), ([None, None], None, False), ([None], NO, True), ([], None, True)],
)
def test_reading_shows_owners_unless_it_shows_none_where_there_are_some(
    inventory, writer, owners, trouble, shown
):
    for host_id, owner in zip(numbered(len(owners)), owners, strict=True):
        inventory.set(host_id, owner=owner)
    inventory.on_read = raising(trouble)
    assert writer.shows_an_owner(numbered(len(owners))) == shown
    for failure in (AuthenticationError("No."), CUT):
        inventory.on_read = forever(failure)
        with pytest.raises(type(failure)):
            writer.shows_an_owner(["h-0"])


# A service that cannot read one asset


@pytest.fixture
def unreadable(inventory, ledger, clock):
    inventory.reads_single_hosts = False
    inventory.set("h-1", owner="u-2")
    return Writer(inventory, ledger, clock=clock, sleep=clock.sleep)


def test_without_read_the_list_made_just_before_counts(inventory, unreadable):
    told = [unreadable.write(row(host_id)).outcome for host_id in ("h-0", "h-1", "h-404")]
    inventory.after_write = forever(CUT)
    told.append(unreadable.write(row("h-2")).outcome)
    assert told == ["written", "owned_meanwhile", "failed", "intended"]
    assert (inventory.calls["list"], inventory.asked) == (2, (0, 2)), "again after the first write"


def test_without_read_a_host_turned_away_needs_a_list_made_since(inventory, unreadable, clock):
    """A list that fails is none."""
    clock.sleep(1)
    inventory.on_write = forever(SLOW)
    inventory.on_list = forever(NO)
    assert [unreadable.write(row(host_id)).outcome for host_id in ("h-0", "h-2")] == ["intended"] * 2
    assert (inventory.calls["list"], inventory.calls["write"]) == (3, 2)
    inventory.on_list = lambda: inventory.set("h-3", owner="u-2")
    assert unreadable.write(row("h-3")).outcome == "owned_meanwhile"


def test_without_read_hosts_are_listed_again_until_a_write_is_confirmed(inventory, unreadable, ledger):
    inventory.on_write = lambda host_id, sent: {} if host_id == "h-0" else sent
    assert write_plan(plan("h-0", "h-2", "h-3", "h-4"), unreadable, ledger) is None
    assert list(outcomes(ledger).values()) == ["intended", *["written"] * 3]
    assert inventory.calls["list"] == 1 + 6 + 2


# Plans applied later, and undone


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, "written"),
        ({"criticality": "high"}, "written"),  # not part of the plan
        ({"department": "New"}, "not_written"),
        ({"owner": "u-2"}, "owned_meanwhile"),
        ({"owner": "u-2", "department": "New"}, "owned_meanwhile"),
    ],
)
def test_an_old_plan_skips_hosts_that_changed_since(inventory, writer, changes, outcome):
    inventory.set("h-0", **changes)
    assert writer.write(row(), decide_apply).outcome == outcome
    assert inventory.calls["write"] == (outcome == "written")


@pytest.mark.parametrize(
    ("changed", "outcome", "left"),
    [
        ({}, "undone", (None, "Old", None)),
        ({"department": "New"}, "undone", (None, "New", None)),
        ({"department": None}, "undone", (None, None, None)),
        ({"owner": "u-2"}, "undone", ("u-2", "Old", None)),
        ({"owner": "u-2", "department": "New"}, "not_written", ("u-2", "New", None)),
    ],
)
@pytest.mark.parametrize("answer", [None, CUT, BUSY, SIGN_IN, SLOW])
def test_undo_undoes_what_the_host_still_holds(inventory, writer, changed, outcome, left, answer):
    assert writer.write(row()).outcome == "written"
    inventory.set("h-0", **changed)
    inventory.after_write = raising(*[answer] * 9)
    result = writer.write(undo_row(), decide_undo)
    assert (result.outcome, inventory.holds()) == (outcome, left)
    assert inventory.calls["write"] == 1 + (outcome == "undone")
    shown = {name: "another" if name == "owner" else value or "none" for name, value in changed.items()}
    said = f"left unchanged: {', '.join(f'{name} is {value} now' for name, value in shown.items())}"
    if outcome == "not_written":
        said = "skipped: the host no longer has any value that the run wrote"
    assert (result.message or "").endswith(said) == bool(changed)
    assert result.kept == ([*changed] or None)
    if changed == {"owner": "u-2"}:
        assert (result.old_values, result.new_values) == (values("u-2", "Sales"), values(None, "Old"))


@pytest.mark.parametrize(
    ("done", "owner", "outcome", "sent"),
    [
        (False, None, "undone", values(None, "Old")),  # the department is still what we wrote
        (True, "u-2", "undone", values("", "Old")),  # it was done, and somebody set an owner since
    ],
)
def test_an_undo_that_was_refused_reads_what_others_have_left_of_it(
    inventory, writer, done, owner, outcome, sent
):
    assert writer.write(row()).outcome == "written"
    somebody_was_faster = raising(SIGN_IN, meanwhile=lambda host_id: inventory.set(host_id, owner=owner))
    setattr(inventory, "after_write" if done else "on_write", somebody_was_faster)
    result = writer.write(undo_row(), decide_undo)
    assert (result.outcome, result.new_values) == (outcome, sent)
    assert inventory.holds() == (owner, "Old", None)


@pytest.mark.parametrize(
    ("owner", "department", "wrote", "outcome"),
    [
        ("u-2", "Old", values("u-1", "Old"), "not_written"),  # the write had not changed the department
        ("a,b", "Sales", values("a,b", "Sales"), "undone"),  # two owners that read like the one written
    ],
)
def test_an_undo_sends_no_owner_that_is_another_and_no_value_that_was_not_changed(
    inventory, writer, owner, department, wrote, outcome
):
    inventory.set("h-0", owner=owner, department=department)
    result = writer.write(row(old=wrote, new=values("", "Old")), decide_undo)
    assert (result.outcome, inventory.calls["write"]) == (outcome, outcome == "undone")
    assert inventory.holds() == (owner, "Old", None)


# All hosts of a plan


def test_every_outcome_goes_into_the_ledger(inventory, writer, ledger):
    inventory.set("h-1", owner="u-2")
    planned = pl.concat(
        [plan("h-404", *numbered(20)), plan("h-30", outcome="not_written", completed_at=NOON)]
    )
    seen = []
    ended_by = write_plan(planned, writer, ledger, concurrency=4, progress=lambda *done: seen.append(done))
    assert ended_by is None
    rows = ledger.rows("owner_writes", "run-1")
    assert Counter(rows["outcome"]) == {"written": 19, "owned_meanwhile": 1, "failed": 1, "not_written": 1}
    assert rows["completed_at"].min() == NOON
    assert rows["completed_at"].null_count() == 0
    assert validated(OwnerWrites, rows).height == planned.height
    assert seen == [(number, 21) for number in range(1, 22)]


@pytest.mark.parametrize(("limit", "tried"), [(3, 6), (4, 40)])
@pytest.mark.parametrize("error", [NO, CUT], ids=["refused", "lost"])
def test_failures_in_a_row_end_the_writing_and_leave_the_rest(inventory, writer, ledger, limit, tried, error):
    def refuse(host_id, sent):
        if host_id in {"h-11", "h-13", "h-14", "h-15"}:  # the success of h-12 begins the count anew
            raise error
        return sent

    inventory.on_write = refuse
    planned = plan(*(f"h-{number}" for number in (10, 11, 12, 13, 14, 15, *range(16, 40), *range(10))))
    ended_by = write_plan(planned, writer, ledger, max_failed_writes=limit)
    left = ledger.rows("owner_writes", "run-1").filter(outcome="not_written")
    assert (str(error) in str(ended_by)) == (tried == 6)
    assert (inventory.calls["write"], left.height) == (tried, 40 - tried)
    assert left["completed_at"].null_count() == 0
    assert all(ended_by in message for message in left["message"])


@pytest.mark.parametrize(("where", "last"), [("on_read", "failed"), ("on_write", "intended")])
def test_a_session_that_cannot_be_renewed_stops_the_writing(inventory, writer, ledger, where, last):
    """An answer of 401 to a write does not prove that it was not done."""
    usual = getattr(inventory, where)

    def end_for_good(host_id, *sent):
        if host_id == "h-2":
            raise AuthenticationError("The log-in was refused.")
        return usual(host_id, *sent)

    setattr(inventory, where, end_for_good)
    ended_by = write_plan(plan(*numbered(5)), writer, ledger)
    assert ended_by == "The log-in was refused."
    assert list(outcomes(ledger).values()) == ["written", "written", last, *["not_written"] * 2]
    assert inventory.calls["read"] == 3 + 2
    messages = ledger.rows("owner_writes", "run-1")["message"].to_list()
    assert messages[2] == ended_by
    assert ended_by in messages[4]


def test_failures_count_in_the_order_of_completion(inventory, writer, ledger):
    """Hosts that answer late do not hide that all others fail."""
    released, numbers = threading.Event(), count(1)

    def answer(_, sent):
        if (number := next(numbers)) > 4:  # the first are read back before others begin
            raise NO
        assert number < 4 or released.wait(10)
        return sent

    inventory.on_write = answer

    def progress(done, _):
        if done == 3 + 3:
            released.set()

    ended_by = write_plan(
        plan(*numbered(40)), writer, ledger, progress=progress, concurrency=2, max_failed_writes=3
    )
    assert ended_by
    assert Counter(outcomes(ledger).values())["not_written"] > 25


def test_while_the_service_hangs_it_is_told_how_far_the_writing_is(inventory, writer, ledger, monkeypatch):
    monkeypatch.setattr(workers, "SECONDS_BETWEEN_QUESTIONS", 0.01)
    told, seen = threading.Event(), []

    def progress(done, _):
        seen.append(done)
        if seen.count(1) > 2:
            told.set()

    inventory.on_write = lambda host_id, sent: sent if host_id == "h-0" or told.wait(10) else None
    assert write_plan(plan("h-0", "h-1"), writer, ledger, progress=progress) is None


def test_a_run_that_ended_before_its_first_write_does_not_write_and_accounts_for_each_host(
    inventory, writer, ledger
):
    def ended():
        raise RunEndedError("This run has ended")

    with pytest.raises(RunEndedError):
        write_plan(plan(*numbered(3)), writer, ledger, require_running=ended)
    assert inventory.calls["write"] == 0
    assert outcomes(ledger) == dict.fromkeys(numbered(3), "not_written")
    assert all("This run has ended" in message for message in ledger.rows("owner_writes", "run-1")["message"])


@pytest.mark.parametrize(
    ("error", "reason"),
    [(KeyboardInterrupt(), "it was interrupted"), (AssetOwnersError("Dagster is away"), "Dagster is away")],
)
def test_an_interrupted_run_sends_nothing_more(inventory, writer, ledger, error, reason):
    def interrupt(done, _):
        if done == 2:
            raise error

    inventory.on_write = lambda _, sent: time.sleep(0.01) or sent
    with pytest.raises(type(error)):
        write_plan(plan(*numbered(40)), writer, ledger, concurrency=2, progress=interrupt)
    sent = inventory.calls["write"]
    assert sent < 40
    assert Counter(outcomes(ledger).values()) == Counter({"written": sent, "not_written": 40 - sent})
    last = ledger.rows("owner_writes", "run-1").filter(outcome="not_written")["message"][-1]
    assert last == f"the run ended before this host's turn: {reason}"


@pytest.mark.parametrize("hook", ["on_read", "after_write"])
def test_an_interrupted_run_waits_for_no_answer_for_long(inventory, writer, ledger, monkeypatch, hook):
    """A reading that hangs is followed by no request, and a write that hangs is of unknown outcome."""
    monkeypatch.setattr(workers, "GRACE_SECONDS", 0.1)
    before = set(threading.enumerate())
    answer, hanging = threading.Event(), threading.Event()

    tried = set()

    def hang(host_id):
        tried.add(host_id)
        if len(tried) > 1:  # threads begin in no order
            hanging.set()
            answer.wait(10)

    def interrupt(*_):
        hanging.wait(10)
        raise KeyboardInterrupt

    setattr(inventory, hook, hang)
    with pytest.raises(KeyboardInterrupt):
        write_plan(plan("h-0", "h-1"), writer, ledger, concurrency=2, progress=interrupt)
    assert sorted(outcomes(ledger).values()) == ["intended", "written"]
    answer.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(1)
    assert inventory.calls["write"] == (1 if hook == "on_read" else 2)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_who_has_lost_the_lock_sends_nothing_more(inventory, writer, ledger, monkeypatch, concurrency):
    """Somebody else may be writing by then; the ledger of a database raises where its session is gone."""

    def lost():
        raise AssetOwnersError("the lock is lost")

    inventory.after_write = lambda _: monkeypatch.setattr(ledger, "require_lock", lost)
    with pytest.raises(AssetOwnersError, match="the lock is lost"):
        write_plan(plan(*numbered(20)), writer, ledger, concurrency=concurrency)
    sent = inventory.calls["write"]
    assert 1 <= sent <= concurrency
    reasons = ledger.rows("owner_writes", "run-1").filter(outcome="not_written")["message"]
    assert all("turn: the lock is lost" in reason for reason in reasons)
    found = Counter(outcomes(ledger).values())
    assert found["written"] + found["intended"] <= 2 * concurrency
    assert found["not_written"] >= 20 - 2 * concurrency


# When the next write may begin


class LaterError(Exception):
    """Somebody is to wait so many seconds."""


@pytest.fixture
def pace(clock):
    def later(seconds):
        raise LaterError(seconds)

    return Pace(clock=clock, sleep=later)


def held_back(pace):
    """How long somebody who comes now is to wait for another try; None: not at all."""
    try:
        pace.wait()
    except LaterError as later:
        return later.args[0]
    return None


def test_all_writers_wait_as_asked_after_a_refusal_also_those_whose_turn_was_near(pace, clock):
    first, second = pace.wait(), pace.wait()
    assert pace.slow_down(turn=first, retry_after=1)
    assert pace.slow_down(turn=second, retry_after=120), "of a burst, the longest counts"
    clock.now += 119.5
    assert held_back(pace) == 0.5
    clock.now += 0.5
    assert held_back(pace) is None
    assert held_back(pace) is not None, "the others come after it, one by one"


def test_refusals_of_one_moment_count_once(pace, clock):
    turns = [pace.wait() for _ in range(8)]
    clock.now += 1
    for turn in turns:
        pace.slow_down(turn=turn, retry_after=None)
    clock.now += 1
    assert held_back(pace) is None
    assert held_back(pace) == pytest.approx(MIN_INTERVAL_SECONDS)


def test_without_a_time_the_wait_grows_until_a_write_is_taken(pace, clock):
    waits = []
    for _ in range(8):
        pace.slow_down(turn=pace.wait(), retry_after=None)
        before = clock.now
        while (seconds := held_back(pace)) is not None:
            clock.now += seconds
        waits.append(round(clock.now - before))
        clock.now += MAX_WAIT_SECONDS  # the writer that had this turn is done
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_each_accepted_write_lets_the_next_ones_follow_a_little_faster(pace, clock):
    for _ in range(9):
        clock.now += MAX_WAIT_SECONDS
        pace.slow_down(turn=pace.wait(), retry_after=None)
    clock.now += MAX_WAIT_SECONDS
    for _ in range(100):
        pace.speed_up()
    assert held_back(pace) is None
    assert held_back(pace) == pytest.approx(2**8 * MIN_INTERVAL_SECONDS * FASTER**100)


def test_a_service_that_takes_nothing_for_long_is_given_up(pace, clock):
    assert not pace.slow_down(turn=pace.wait(), retry_after=GIVE_UP_SECONDS)
    pace.speed_up()
    assert pace.slow_down(turn=clock.now, retry_after=1)
    clock.now += GIVE_UP_SECONDS
    assert not pace.slow_down(turn=clock.now, retry_after=1)
    pace.speed_up()
    assert pace.slow_down(turn=clock.now, retry_after=1)
