import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from starlette.responses import HTMLResponse, JSONResponse
from urllib3.connection import HTTPConnection

from ownership.declaration import polars_schema, validated
from ownership.plan import plan_undo
from ownership.tables import OwnerWrites
from resources.errors import AssetOwnersError, ServiceError
from resources.inventory.client import InventoryClient
from resources.settings import journal_url
from resources.store.tables import Tables
from resources.writeback import run
from resources.writeback.journal import Journal, Result
from resources.writeback.leftovers import settle_leftovers, without_changed_hosts
from resources.writeback.pace import Pace
from resources.writeback.postgres import PostgresJournal
from resources.writeback.run import write_all
from resources.writeback.writer import Writer
from sandbox.inventory import BrokenOff, InventoryService, InventoryState, ServiceOptions
from tests.ownership.builders import TARGET, host, hosts
from tests.resources.inventory_world import ADMIN, READER, TENANT, Watch, client, seen
from tests.resources.samples import instance, instance_content

ROOT = Path(__file__).parents[3]
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
USERS = [{"id": "u-1", "user_email": "ann@corp.example"}, {"id": "u-2", "user_email": "bob@corp.example"}]
HOSTS = [
    {
        "id": f"h-{number}",
        "search_agent_name": f"PC-{number}",
        "asset_owner": None,
        "department": "Old",
        "criticality": None,
    }
    for number in range(40)
]
READ, UPDATE = "assets/get", "assets/update"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    path = tmp_path_factory.mktemp("inventory") / "state.sqlite"
    with InventoryState(path) as state, InventoryService(state) as service:
        yield service


@pytest.fixture
def service(running):
    """The service as it is after its start; a `Watch` hooks into it."""
    running.hooks.faults = running.hooks.after = None
    running.state.reset([ADMIN, READER], HOSTS, USERS, TENANT)
    return running


@pytest.fixture
def state(service):
    return service.state


def opened(folder):
    """The journal of a test: a file of the folder, or where the environment says."""
    url = journal_url()
    return PostgresJournal(url, lambda: "corp") if url else Journal(folder / "writes.sqlite")


@pytest.fixture(params=["file"])
def journal(request, tmp_path, monkeypatch):
    if request.param == "database":
        monkeypatch.setenv("ASSET_OWNERS_JOURNAL", request.getfixturevalue("postgres").new_database())
    with opened(tmp_path) as journal:
        yield journal


IN_FILE_AND_DATABASE = pytest.mark.parametrize("journal", ["file", "database"], indirect=True)


@pytest.fixture
def tables(tmp_path):
    tables = Tables(tmp_path / "home", "corp")
    tables.prepare()
    return tables


@pytest.fixture
def writer(service, tmp_path, journal):
    """Opens a writer; its client never really sleeps."""
    opened = []

    def open_writer(account=ADMIN, *, listed=hosts, contract=None):
        inventory = client(tmp_path, service.url, account, contract=contract)
        opened.append(inventory)
        platform = {**instance_content()["platform"], "contract": contract or {}}
        return Writer(seen(inventory, instance(platform=platform), listed), journal)

    yield open_writer
    for inventory in opened:
        inventory.__exit__()


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def values(owner=None, department=None, criticality=None):
    return {"owner": owner, "department": department, "criticality": criticality}


def plan(*host_ids, new=None, old=None, run_id="run-1"):
    rows = [
        {
            "run_id": run_id,
            "host_id": host_id,
            "hostname": host_id.replace("h-", "pc-"),
            "outcome": "planned",
            "old_values": old or values(department="Old"),
            "new_values": new or values("u-1", "Sales"),
            "message": None,
            "intended_at": NOON,
            "completed_at": None,
            "target": instance().target,
        }
        for host_id in host_ids
    ]
    return pl.DataFrame(rows, schema=polars_schema(OwnerWrites))


def row(host_id="h-0", **changes):
    return plan(host_id, **changes).row(0, named=True)


def asked(watch):
    """Requests that reached the service, log-ins aside."""
    return {path: count for path, count in watch.calls.items() if path.startswith("assets/")}


def on_update(then):
    """A hook for the moment when an update is applied, or would be."""

    def hook(request, *_):
        return then(request) if request.url.path.endswith(UPDATE) else None

    return hook


def host_fields(state, host_id="h-0"):
    asset = state.asset(host_id)
    return asset["asset_owner"], asset["department"], asset["criticality"]


# One host, read and written


def test_owner_and_enrichment_go_in_one_request_after_a_look(service, state, writer):
    watch = Watch(service)
    result = writer().write(row(new=values("u-1", "Sales", "high")))
    assert (result.outcome, result.message, result.old_values) == ("written", None, values(department="Old"))
    assert host_fields(state) == ("u-1", "Sales", "high")
    assert asked(watch) == {READ: 2, UPDATE: 1}, "the first writes are read back"
    assert len({entry.request_id for entry in state.journal()}) == 1


def test_what_is_not_to_be_written_is_not_sent(state, writer):
    assert writer().write(row(new=values("u-1"))).outcome == "written"
    assert [(entry.field, entry.old, entry.new) for entry in state.journal()] == [
        ("asset_owner", None, "u-1")
    ]


def test_fields_go_by_the_names_of_instance_and_contract(service, tmp_path, state, journal):
    state.add_assets(
        TENANT,
        "host",
        [{"id": "h-x", "search_agent_name": "PC-x", "keeper": None, "user_department": "Old", "risk": "low"}],
    )
    contract = {"enrich_fields": {"user_department": "user_department", "criticality": None}}
    platform = {**instance_content()["platform"], "contract": contract}
    settings = instance(platform=platform, platform_user_field="keeper")
    with client(tmp_path, service.url, contract=contract) as inventory:
        planned = row("h-x", new=values("u-2", "Sales", "high"))
        result = Writer(seen(inventory, settings, hosts), journal).write(planned)
    assert (result.outcome, result.old_values) == ("written", values(department="Old"))
    assert result.new_values == values("u-2", "Sales"), "what was sent"
    asset = state.asset("h-x")
    assert (asset["keeper"], asset["user_department"], asset["risk"]) == ("u-2", "Sales", "low")


@pytest.mark.parametrize(
    ("owner", "held", "said"),
    [
        ("u-2", "u-2", "has got the owner u-2 in the meantime"),
        (["u-2", "u-1"], "u-2,u-1", "has got the owner u-2,u-1 in the meantime"),
        ("u-1", "u-1", "has the owner u-1 already"),
        ("someone", "someone", "has got the owner someone in the meantime"),
    ],
)
def test_a_host_owned_meanwhile_is_left_alone(service, state, writer, owner, held, said):
    watch = Watch(service)
    state.set_field("h-0", "asset_owner", owner)
    result = writer().write(row())
    assert (result.outcome, result.message) == ("owned_meanwhile", said)
    assert result.old_values == values(held, "Old")
    assert host_fields(state) == (owner, "Old", None)
    assert asked(watch) == {READ: 1}


@pytest.mark.parametrize(
    ("account", "changes", "says"),
    [
        (ADMIN, {"new": values("u-404")}, "asset_owner: This field must be the id of a user asset"),
        (READER, {}, "You do not have permission"),
    ],
)
def test_a_write_that_the_service_refuses_is_failed_with_its_words(
    service, state, writer, account, changes, says
):
    watch = Watch(service)
    result = writer(account).write(row(**changes))
    assert (result.outcome, result.old_values) == ("failed", values(department="Old"))
    assert says in result.message
    assert (host_fields(state), asked(watch)) == ((None, "Old", None), {READ: 1, UPDATE: 1})


def test_a_host_that_is_gone_is_failed(service, writer):
    watch = Watch(service)
    result = writer().write(row("h-404"))
    assert (result.outcome, result.old_values) == ("failed", None)
    assert "The asset was not found" in result.message
    assert asked(watch) == {READ: 1}


def test_a_host_that_cannot_be_read_is_failed_and_nothing_is_sent(service, writer):
    watch = Watch(service, lambda request: HTMLResponse("busy", 503) if READ in request.url.path else None)
    result = writer().write(row())
    assert result.outcome == "failed"
    assert "HTTP status 503" in result.message
    assert asked(watch) == {READ: 5}


def test_an_owner_of_an_unusable_type_is_failed_and_nothing_is_sent(service, state, writer):
    watch = Watch(service)
    state.set_field("h-0", "asset_owner", {"id": "u-2"})
    result = writer().write(row())
    assert (result.outcome, asked(watch)) == ("failed", {READ: 1})
    assert "platform_user_field must name" in result.message


# Answers that are lost are read back and never sent again


@pytest.mark.parametrize(
    "answer",
    [
        BrokenOff(),
        HTMLResponse("<html>gateway time-out</html>", 504),
        HTMLResponse("<html>welcome</html>", 200),
        JSONResponse({"status": False, "message": "It broke.", "data": None}, 500),
        JSONResponse({"status": False, "message": "Slow.", "data": None}, 503, {"Retry-After": "1"}),
        JSONResponse({"ok": True}),
    ],
)
class TestLostAnswers:
    def test_a_write_that_was_done_is_confirmed(self, service, state, writer, answer):
        watch = Watch(service)
        service.hooks.after = on_update(lambda _: answer)
        result = writer().write(row())
        assert (result.outcome, result.old_values) == ("written", values(department="Old"))
        assert result.message.startswith("confirmed by reading back; the answer was lost: ")
        assert (host_fields(state), asked(watch)) == (("u-1", "Sales", None), {READ: 2, UPDATE: 1})

    def test_a_write_that_was_not_done_stays_intended(self, service, state, writer, answer):
        """It may be done later than we look: only the service refuses a write."""
        watch = Watch(service, on_update(lambda _: answer))
        result = writer().write(row())
        assert (result.outcome, result.old_values) == ("intended", values(department="Old"))
        assert (host_fields(state), asked(watch)) == ((None, "Old", None), {READ: 2, UPDATE: 1})

    def test_a_write_that_somebody_came_before_stays_intended(self, service, state, writer, answer):
        """Who came first is not to be told: the run after has the inventory's word."""

        def someone_else(_):
            state.set_field("h-0", "asset_owner", "u-2")
            return answer

        watch = Watch(service, on_update(someone_else))
        result = writer().write(row())
        assert (result.outcome, result.old_values) == ("intended", values(department="Old"))
        assert (host_fields(state), asked(watch)) == (("u-2", "Old", None), {READ: 2, UPDATE: 1})

    def test_a_write_that_cannot_be_read_back_stays_intended(self, service, state, writer, answer):
        """It was done; the next run finds out."""
        down = []

        def after(request, _):
            if UPDATE in request.url.path:
                down.append(True)
                return answer
            return HTMLResponse("down", 503) if down else None

        watch = Watch(service)
        service.hooks.after = after
        result = writer().write(row())
        assert (result.outcome, result.old_values) == ("intended", values(department="Old"))
        assert (state.asset("h-0")["asset_owner"], watch.calls[UPDATE]) == ("u-1", 1)


def test_a_service_that_spells_values_its_own_way_is_not_taken_for_somebody_else(service, state, writer):
    def spelled(_):
        state.set_field("h-0", "department", "SALES")
        return BrokenOff()

    service.hooks.after = on_update(spelled)
    assert writer().write(row()).outcome == "written"


# Nobody sends a write twice: after whatever took time the host is looked at again


def test_a_session_that_ends_before_a_write_means_another_look(service, state, writer):
    """Somebody gives the host an owner while we log in."""
    ended = []

    def end_session(_):
        if not ended:
            ended.append(True)
            state.set_field("h-0", "asset_owner", "u-2")
            return JSONResponse({"status": False, "message": "Sign in.", "data": None}, 401)
        return None

    watch = Watch(service, on_update(end_session))
    result = writer().write(row())
    assert (result.outcome, host_fields(state)[0]) == ("owned_meanwhile", "u-2")
    assert (asked(watch), watch.calls["auth/login"]) == ({READ: 2, UPDATE: 1}, 2)


def test_a_write_is_sent_again_after_the_look_when_the_session_had_ended(service, state, writer):
    answers = [JSONResponse({"status": False, "message": "Sign in.", "data": None}, 401)]
    watch = Watch(service, on_update(lambda _: answers.pop() if answers else None))
    result = writer().write(row())
    assert (result.outcome, host_fields(state)[0]) == ("written", "u-1")
    assert asked(watch) == {READ: 3, UPDATE: 2}
    assert len({entry.request_id for entry in state.journal()}) == 1


@pytest.mark.parametrize("status", [401, 429])
def test_a_service_that_wrote_and_then_says_that_it_did_not_gets_it_once(service, state, patient, status):
    watch = Watch(service)
    service.hooks.after = on_update(
        lambda _: JSONResponse({"status": False, "message": "Not now.", "data": None}, status)
    )
    result = patient.write(row())
    assert (result.outcome, host_fields(state)[0]) == ("written", "u-1")
    assert result.message.startswith("confirmed by looking again")
    assert result.old_values == values(department="Old"), "what it held before, for an undo"
    assert asked(watch) == {READ: 2, UPDATE: 1}


def test_sessions_that_do_not_last_end_the_writing(state, tmp_path, journal):
    with InventoryService(state, ServiceOptions(session_calls=1)) as service:
        watch = Watch(service)
        with client(tmp_path, service.url) as inventory:
            planned = plan(*(f"h-{number}" for number in range(40)))
            ended_by = carry_out(planned, Writer(seen(inventory, instance(), hosts), journal), journal)
    assert ended_by
    assert "session" in ended_by
    assert sum(watch.calls.values()) < 60
    written = {entry.asset_id for entry in state.journal()}
    said = {name for name, outcome in outcomes(journal).items() if outcome in {"written", "intended"}}
    assert written <= said


def test_a_refusal_after_a_429_is_no_proof_that_the_first_request_was_not_carried_out(
    service, state, patient
):
    """The first one is carried out late, and keeps the second one from being taken."""
    answers = [JSONResponse({"status": False, "message": "Slow.", "data": None}, 429)]

    def late(_):
        if answers:
            return answers.pop()
        state.set_field("h-0", "asset_owner", "u-1")
        return JSONResponse({"status": False, "message": "It has an owner.", "data": None})

    Watch(service, on_update(late))
    assert patient.write(row()).outcome == "written"


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "1"}])
def test_a_service_that_asks_to_wait_gets_the_write_after_another_look(service, state, writer, headers):
    answers = [JSONResponse({"status": False, "message": "Slow.", "data": None}, 429, headers)]
    watch = Watch(service, on_update(lambda _: answers.pop() if answers else None))
    began = time.monotonic()
    result = writer().write(row())
    assert (result.outcome, host_fields(state)[0]) == ("written", "u-1")
    assert asked(watch) == {READ: 3, UPDATE: 2}
    assert time.monotonic() - began >= 1


def test_a_service_with_a_limit_gets_all_writes_of_a_plan(service, writer, journal):
    """It takes ten writes a second and refuses the rest."""
    taken = []

    def limit(_):
        now = time.monotonic()
        if len([at for at in taken if at > now - 1]) >= 10:
            return JSONResponse({"status": False, "message": "Slow.", "data": None}, 429)
        taken.append(now)
        return None

    Watch(service, on_update(limit))
    planned = plan(*(f"h-{number}" for number in range(40)))
    assert carry_out(planned, writer(), journal, concurrency=8, max_failed_writes=2) is None
    assert set(outcomes(journal).values()) == {"written"}


def test_a_service_that_never_takes_a_write_ends_the_writing(service, tmp_path, journal):
    Watch(
        service, on_update(lambda _: JSONResponse({"status": False, "message": "Slow.", "data": None}, 429))
    )
    clock = Clock()
    with client(tmp_path, service.url) as inventory:
        writer = Writer(seen(inventory, instance(), hosts), journal, clock=clock, sleep=clock.sleep)
        ended_by = carry_out(plan("h-0", "h-1"), writer, journal, concurrency=1)
    assert ended_by
    assert "asks to wait for longer than 600 s" in ended_by
    assert outcomes(journal) == {"h-0": "intended", "h-1": "not_written"}, "h-0 was sent"


SLOW = {"status": False, "message": "Slow.", "data": None}
SIGN_IN = {"status": False, "message": "Sign in.", "data": None}


@pytest.fixture
def patient(service, tmp_path, journal):
    """Opens a writer whose waits pass at once."""
    with client(tmp_path, service.url) as inventory:
        clock = Clock()
        yield Writer(seen(inventory, instance(), hosts), journal, clock=clock, sleep=clock.sleep)


@pytest.mark.parametrize("corrected", [None, "u-2"])
def test_a_write_that_a_proxy_turns_away_and_the_service_carries_out_late_is_sent_once(
    service, state, patient, journal, tables, corrected
):
    """A proxy in front says 503 with Retry-After; what somebody corrects after the write stays corrected."""
    queue = []

    def carry_out_late():
        state.set_field("h-0", "asset_owner", queue.pop())
        if corrected:
            state.set_field("h-0", "asset_owner", corrected)

    def in_front(request):
        if request.state.parameters["id"] != "h-0":
            return None
        if queue:
            carry_out_late()
            return None
        queue.append(request.state.parameters["asset_owner"])
        return JSONResponse(SLOW, 503, {"Retry-After": "7"})

    watch = Watch(service, on_update(in_front))
    began = patient._clock()
    assert carry_out(plan("h-0", "h-1"), patient, journal, concurrency=1) is None
    assert (outcomes(journal), watch.calls[UPDATE]) == ({"h-0": "intended", "h-1": "written"}, 2)
    assert patient._clock() - began >= 7, "the others wait as asked"
    carry_out_late()
    assert settle_leftovers(journal, tables, listed(state), instance().target) == 1
    settled = tables.run_writes("run-1").filter(host_id="h-0")["outcome"][0]
    owner = state.asset("h-0")["asset_owner"]
    assert (settled, owner) == (("not_written", "u-2") if corrected else ("written", "u-1"))


@pytest.mark.parametrize(
    ("then", "outcome"),
    [
        ({"asset_owner": "u-1"}, "written"),  # nobody can tell who did it
        ({"asset_owner": ["u-2", "u-1"]}, "written"),
        ({"asset_owner": "u-2"}, "owned_meanwhile"),
        ({"search_agent_name": "PC-77"}, "intended"),
    ],
)
def test_what_a_host_holds_after_a_429_tells_what_became_of_the_write(service, state, patient, then, outcome):
    def somebody_was_faster(_):
        for field, value in then.items():
            state.set_field("h-0", field, value)
        return JSONResponse(SLOW, 429)

    watch = Watch(service, on_update(somebody_was_faster))
    assert (patient.write(row()).outcome, watch.calls[UPDATE]) == (outcome, 1)


def test_a_write_that_may_have_been_done_stays_intended_when_the_service_lets_nobody_look(
    service, state, patient, journal
):
    """It was done and answered with 401; from then on the service asks to wait, without an end."""
    done = []

    def after(request, _):
        if UPDATE in request.url.path:
            done.append(True)
            return JSONResponse(SIGN_IN, 401)
        return JSONResponse(SLOW, 429) if done and READ in request.url.path else None

    watch = Watch(service)
    service.hooks.after = after
    assert carry_out(plan("h-0"), patient, journal, concurrency=1)
    assert (outcomes(journal), watch.calls[UPDATE]) == ({"h-0": "intended"}, 1)
    assert state.asset("h-0")["asset_owner"] == "u-1"


@pytest.mark.parametrize("status", [429, 502])
def test_a_log_in_that_fails_after_a_write_hides_nothing(service, state, patient, status):
    """The write was done and answered with 401; then the log-in has its own troubles."""
    answers = [JSONResponse(SLOW, status)]
    done = []

    def after(request, _):
        if UPDATE in request.url.path:
            done.append(True)
            return JSONResponse(SIGN_IN, 401)
        return answers.pop() if done and answers and "auth/login" in request.url.path else None

    watch = Watch(service)
    service.hooks.after = after
    result = patient.write(row())
    assert (result.outcome, watch.calls[UPDATE], state.asset("h-0")["asset_owner"]) == ("written", 1, "u-1")


def test_a_host_that_waits_for_its_turn_was_surely_sent_nothing(service, tmp_path, journal):
    clock = Clock()
    unsent = []

    def sleep(seconds):
        unsent.append(journal.unsent("run-1"))
        clock.sleep(seconds)

    with client(tmp_path, service.url) as inventory:
        pace = Pace(clock=clock, sleep=sleep)
        pace.refused(turn=0.0, retry_after=30)
        guarded = Writer(seen(inventory, instance(), hosts), journal, pace=pace, clock=clock, sleep=sleep)
        assert carry_out(plan("h-0"), guarded, journal) is None
    assert unsent
    assert set(map(frozenset, unsent)) == {frozenset({"h-0"})}


def test_whoever_waits_sends_nothing_more_when_the_run_has_ended(service, tmp_path, journal):
    """The service asks to wait, and somebody interrupts the run."""
    clock, waiting = Clock(), threading.Event()
    watch = Watch(service, on_update(lambda _: (waiting.is_set() and JSONResponse(SLOW, 429)) or None))

    def sleep(seconds):
        time.sleep(0.01)
        clock.sleep(seconds)

    def interrupt(*_):
        waiting.set()
        while watch.calls[UPDATE] < 3:
            time.sleep(0.01)
        raise KeyboardInterrupt

    with client(tmp_path, service.url) as inventory:
        guarded = Writer(seen(inventory, instance(), hosts), journal, clock=clock, sleep=sleep)
        with pytest.raises(KeyboardInterrupt):
            carry_out(plan("h-0", "h-1", "h-2", "h-3"), guarded, journal, concurrency=2, progress=interrupt)
    assert clock.now < 100, "it does not go on until the service is given up"
    assert Counter(outcomes(journal).values())["intended"] == 2, "those that were sent and turned away"
    assert watch.calls[UPDATE] <= 5


def test_a_look_that_is_too_old_is_made_again(service, state, writer, journal, monkeypatch):
    """The disk hangs between look and write, and somebody gives the host an owner."""
    sending, stalls = journal.sending, []

    def hang(*arguments, **values):
        if not stalls:
            stalls.append(True)
            state.set_field("h-0", "asset_owner", "u-2")
            time.sleep(1.1)
        sending(*arguments, **values)

    monkeypatch.setattr(journal, "sending", hang)
    state.set_field("h-0", "department", "other than planned")
    watch = Watch(service)
    result = writer().write(row())
    assert (result.outcome, asked(watch)) == ("owned_meanwhile", {READ: 2})
    assert host_fields(state)[0] == "u-2"


def test_a_look_is_as_old_as_its_request(service, state, patient, monkeypatch):
    """The process is stopped while the answer is on its way, and somebody gives the host an owner."""
    read, stops = InventoryClient.read, []

    def stop(inventory, asset_id):
        fields = read(inventory, asset_id)
        if not stops:
            stops.append(True)
            state.set_field("h-0", "asset_owner", "u-2")
            patient._sleep(2)
        return fields

    monkeypatch.setattr(InventoryClient, "read", stop)
    watch = Watch(service)
    result = patient.write(row())
    assert (result.outcome, asked(watch)) == ("owned_meanwhile", {READ: 2})
    assert host_fields(state)[0] == "u-2"


def test_a_service_whose_looks_take_long_gets_its_writes_all_the_same(service, patient):
    watch = Watch(service, lambda request: patient._sleep(1.2) if READ in request.url.path else None)
    assert patient.write(row()).outcome == "written"
    assert asked(watch) == {READ: 2 + 1 + 1, UPDATE: 1}, "two looks in vain, a third one, and reading back"


def test_a_machine_that_is_always_too_slow_sends_nothing(service, tmp_path, journal):
    class Slow(Clock):
        def __call__(self):
            self.now += 1.1
            return self.now

    clock = Slow()
    watch = Watch(service)
    with client(tmp_path, service.url) as inventory:
        result = Writer(seen(inventory, instance(), hosts), journal, clock=clock, sleep=clock.sleep).write(
            row()
        )
    assert (result.outcome, watch.calls[UPDATE]) == ("failed", 0)
    assert "was not sent" in str(result.message)


def test_the_intention_is_stored_before_the_look(service, writer, journal):
    journal.intend(plan("h-0").with_columns(outcome=pl.lit("intended")))
    unsent = []
    Watch(
        service, lambda request: unsent.append(journal.unsent("run-1")) if READ in request.url.path else None
    )
    writer().write(row())
    assert unsent[0] == set()


# A host is its id and its name


def test_a_host_that_was_made_anew_under_its_id_is_left_alone(service, state, writer):
    state.set_field("h-0", "search_agent_name", "PC-77")
    watch = Watch(service)
    result = writer().write(row())
    assert (result.outcome, asked(watch)) == ("failed", {READ: 1})
    assert "has another name now than planned" in result.message
    assert "PC-77" not in result.message


def test_a_host_with_several_names_is_known_by_any_of_them(state, writer):
    state.set_field("h-0", "search_agent_name", ["renamed", "PC-0"])
    assert writer().write(row()).outcome == "written"


# "Yes" is checked


def nothing_set(_):
    return JSONResponse({"status": True, "message": None, "data": None})


def test_a_service_that_says_yes_and_sets_nothing_ends_the_writing(service, writer, journal):
    watch = Watch(service, on_update(nothing_set))
    planned = plan(*(f"h-{number}" for number in range(40)))
    ended_by = carry_out(planned, writer(), journal)
    assert ended_by
    assert "said yes to" in ended_by
    assert "platform.contract.update (path /api/v1/assets/update, id_param id)" in ended_by
    assert "platform_user_field (asset_owner)" in ended_by
    assert watch.calls[UPDATE] <= 3 + 4
    assert set(outcomes(journal).values()) == {"intended", "not_written"}, "it may still be done"


@pytest.mark.parametrize("contract", [None, {"read": None}])
def test_a_single_write_in_vain_is_told_as_well(service, state, writer, journal, contract):
    Watch(service, on_update(nothing_set))
    guarded = writer(contract=contract, listed=lambda: listed(state))
    ended_by = carry_out(plan("h-0"), guarded, journal)
    assert ended_by
    assert "said yes to 1 writes" in ended_by
    assert outcomes(journal) == {"h-0": "intended"}


@pytest.mark.parametrize("kind", ["write", "undo"])
def test_a_service_that_sets_everything_but_the_owner_is_not_believed(service, state, writer, journal, kind):
    hosts_of = [f"h-{number}" for number in range(5)]

    def all_but_the_owner(request):
        host_id = request.state.parameters["id"]
        state.set_field(host_id, "department", request.state.parameters["department"])
        return nothing_set(request)

    planned = plan(*hosts_of)
    if kind == "undo":
        for host_id in hosts_of:
            state.set_field(host_id, "asset_owner", "u-1")
            state.set_field(host_id, "department", "Sales")
        planned = plan(*hosts_of, new=UNDONE["new"], old=UNDONE["old"])
    Watch(service, on_update(all_but_the_owner))
    ended_by = carry_out(planned, writer(), journal, method=getattr(Writer, kind), concurrency=1)
    assert ended_by
    assert "said yes to 3 writes" in ended_by
    assert not set(outcomes(journal).values()) & {"written", "undone"}


def test_hosts_that_somebody_changes_tell_nothing_of_a_yes(service, state, writer, journal):
    def meanwhile(request):
        if request.state.parameters["id"] == "h-3":
            state.set_field("h-3", "asset_owner", "u-2")
        return nothing_set(request)

    Watch(service, on_update(meanwhile))
    planned = plan("h-3", "h-4", "h-5", "h-6", "h-7")
    assert carry_out(planned, writer(), journal, concurrency=1)
    assert outcomes(journal) == {
        "h-3": "written",  # nobody knows
        **dict.fromkeys(("h-4", "h-5", "h-6"), "intended"),
        "h-7": "not_written",
    }


def test_three_writes_are_read_back_and_no_more(service, writer, journal):
    watch = Watch(service)
    planned = plan(*(f"h-{number}" for number in range(20)))
    assert carry_out(planned, writer(), journal, concurrency=1) is None
    assert asked(watch) == {READ: 20 + 3, UPDATE: 20}


def test_an_undo_in_vain_is_told(service, writer, journal):
    assert writer().write(row()).outcome == "written"
    Watch(service, on_update(nothing_set))
    undone = pl.DataFrame([undo_row()], schema=plan().schema)
    guarded = writer()
    ended_by = write_all(
        undone,
        guarded,
        Writer.undo,
        journal,
        concurrency=1,
        max_failed_writes=20,
        on_progress=lambda *_: None,
    )
    assert ended_by
    assert "said yes to 1 writes" in ended_by
    assert outcomes(journal, "run-2") == {"h-0": "intended"}


# A service that cannot read one asset

UNREADABLE = {"read": None}


def test_without_read_the_list_made_just_before_is_looked_at(service, writer):
    watch = Watch(service)
    listed = hosts(
        host("h-0", "PC-0", department="Older"), host("h-1", "PC-1", owners=("u-2",)), host("h-2", "PC-2")
    )
    guarded = writer(contract=UNREADABLE, listed=lambda: listed)
    results = {host_id: guarded.write(row(host_id)) for host_id in ("h-0", "h-1", "h-39")}
    assert {host_id: result.outcome for host_id, result in results.items()} == {
        "h-0": "written",
        "h-1": "owned_meanwhile",
        "h-39": "failed",
    }
    assert results["h-0"].old_values == values(department="Older")
    assert "no longer in the inventory" in results["h-39"].message
    assert asked(watch) == {UPDATE: 1}


def test_without_read_a_lost_answer_stays_intended(service, writer):
    watch = Watch(service)
    service.hooks.after = on_update(lambda _: BrokenOff())
    result = writer(contract=UNREADABLE, listed=lambda: hosts(host("h-0", "PC-0"))).write(row())
    assert (result.outcome, asked(watch)) == ("intended", {UPDATE: 1})


# Plans carried out later, and put back


@pytest.mark.parametrize(
    ("field", "value", "outcome"),
    [
        (None, None, "written"),
        ("criticality", "high", "written"),  # not part of the plan
        ("department", "New", "not_written"),
        ("asset_owner", "u-2", "owned_meanwhile"),
    ],
)
def test_an_old_plan_leaves_hosts_alone_that_changed_since(service, state, writer, field, value, outcome):
    watch = Watch(service)
    if field:
        state.set_field("h-0", field, value)
    result = writer().apply(row())
    assert result.outcome == outcome
    assert watch.calls[UPDATE] == (1 if outcome == "written" else 0)
    if outcome == "not_written":
        assert result.message == "changed since the plan was made: department"


def undo_row():
    """The row that puts back what `row()` wrote."""
    return plan_undo(
        plan("h-0").with_columns(outcome=pl.lit("written")),
        plan().clear(),
        run_id="run-2",
        target=TARGET,
        intended_at=NOON,
    ).row(0, named=True)


@pytest.mark.parametrize(
    ("changed", "outcome", "left"),
    [
        ({}, "undone", (None, "Old", None)),
        ({"department": "New"}, "undone", (None, "New", None)),
        ({"asset_owner": "u-2"}, "undone", ("u-2", "Old", None)),
        ({"asset_owner": "u-2", "department": "New"}, "not_written", ("u-2", "New", None)),
    ],
)
@pytest.mark.parametrize(
    "told", [None, BrokenOff(), *(JSONResponse({}, status) for status in (401, 429, 503))]
)
def test_undo_puts_back_what_the_host_still_holds(service, state, patient, changed, outcome, left, told):
    assert patient.write(row()).outcome == "written"
    for field, value in changed.items():
        state.set_field("h-0", field, value)
    watch = Watch(service)
    service.hooks.after = on_update(lambda _: told)
    result = patient.undo(undo_row())
    assert (result.outcome, host_fields(state)) == (outcome, left)
    assert watch.calls[UPDATE] == (1 if outcome == "undone" else 0)


# All hosts of a plan


def carry_out(
    planned, writer, journal, *, concurrency=4, max_failed_writes=20, progress=None, method=Writer.write
):
    return write_all(
        planned,
        writer,
        method,
        journal,
        concurrency=concurrency,
        max_failed_writes=max_failed_writes,
        on_progress=progress or (lambda *_: None),
    )


def outcomes(journal, run_id="run-1"):
    return dict(journal.rows(run_id).select("host_id", "outcome").iter_rows())


@IN_FILE_AND_DATABASE
def test_every_outcome_goes_into_the_journal(service, state, writer, journal):
    watch = Watch(service)
    state.set_field("h-1", "asset_owner", "u-2")
    planned = plan("h-0", "h-1", "h-404", *(f"h-{number}" for number in range(2, 20)))
    seen = []
    assert carry_out(planned, writer(), journal, progress=lambda *done: seen.append(done)) is None
    assert Counter(outcomes(journal).values()) == {"written": 19, "owned_meanwhile": 1, "failed": 1}
    rows = journal.rows("run-1")
    assert rows["completed_at"].null_count() == 0
    assert validated(OwnerWrites, rows).height == planned.height
    assert seen == [(number, 21) for number in range(1, 22)]
    assert 1 < watch.most_in_flight <= 4


def test_an_empty_plan_is_carried_out_at_once(service, writer, journal):
    watch = Watch(service)
    assert carry_out(plan(), writer(), journal) is None
    assert (list(journal.targets()), watch.calls) == ([], {})


@IN_FILE_AND_DATABASE
def test_the_whole_plan_is_on_disk_before_the_first_request(service, writer, journal, tmp_path):
    seen = []

    def look(_):
        with opened(tmp_path) as other:
            seen.append(Counter(outcomes(other).values()))

    watch = Watch(service, look)
    carry_out(plan("h-0", "h-1", "h-2"), writer(), journal, concurrency=1)
    assert watch.calls["auth/login"] == 1
    assert seen[0] == {"intended": 3}


def refusing(hosts_refused):
    """A hook that refuses the updates of some hosts."""

    def refuse(request):
        if request.state.parameters["id"] in hosts_refused:
            return JSONResponse({"status": False, "message": "No.", "data": None})
        return None

    return on_update(refuse)


def test_failures_in_a_row_end_the_writing_and_leave_the_rest(service, writer, journal):
    watch = Watch(service, refusing({"h-1", "h-3", "h-4", "h-5"}))
    planned = plan(*(f"h-{number}" for number in range(40)))
    ended_by = carry_out(planned, writer(), journal, concurrency=1, max_failed_writes=3)
    assert ended_by == "3 writes failed one after another"
    found = outcomes(journal)
    assert [found[f"h-{number}"] for number in range(6)] == [
        "written",
        "failed",
        "written",  # begins the count anew
        "failed",
        "failed",
        "failed",
    ]
    left = journal.rows("run-1").filter(outcome="not_written")
    assert left.height + watch.calls[UPDATE] == 40
    assert left.height > 25  # the next ones were on their way
    assert left["message"].unique().to_list() == [f"the run ended before this host's turn: {ended_by}"]


@pytest.mark.parametrize("path", [READ, UPDATE])
def test_a_session_that_is_not_to_be_had_any_more_ends_the_writing_at_once(service, writer, journal, path):
    def end_for_good(request):
        if path in request.url.path and request.state.parameters["id"] == "h-2":
            service.state.reset([READER], HOSTS, USERS, TENANT)

    watch = Watch(service, end_for_good)
    ended_by = carry_out(plan(*(f"h-{number}" for number in range(40))), writer(), journal, concurrency=1)
    assert ended_by
    assert f"refused the log-in of {ADMIN.email}" in ended_by
    assert watch.calls["auth/login"] == 2, "another refused log-in would lock the account"
    rows = journal.rows("run-1")
    found = outcomes(journal)
    last = "failed" if path == READ else "intended"  # an answer of 401 to a write is no proof
    assert [found.pop(f"h-{number}") for number in range(3)] == ["written", "written", last]
    assert set(found.values()) == {"not_written"}
    assert rows.filter(host_id="h-2")["message"][0] == ended_by
    assert ended_by in rows.filter(host_id="h-39")["message"][0]


def test_failures_count_in_the_order_of_completion(service, writer, journal):
    """Hosts that answer late do not hide that all others fail."""
    released = threading.Event()

    def answer(request):
        if request.state.parameters["id"] == "h-0":
            assert released.wait(10)
            return None
        return JSONResponse({"status": False, "message": "No.", "data": None})

    def progress(done, _):
        if done == 3:
            released.set()

    Watch(service, on_update(answer))
    planned = plan(*(f"h-{number}" for number in range(40)))
    assert carry_out(planned, writer(), journal, concurrency=2, max_failed_writes=3, progress=progress)
    assert Counter(outcomes(journal).values())["not_written"] > 25


def test_fewer_failures_than_the_limit_end_nothing(service, writer, journal):
    Watch(service, refusing({"h-0", "h-1", "h-3", "h-4"}))
    planned = plan(*(f"h-{number}" for number in range(6)))
    assert carry_out(planned, writer(), journal, concurrency=1, max_failed_writes=3) is None
    assert Counter(outcomes(journal).values()) == {"written": 2, "failed": 4}


@IN_FILE_AND_DATABASE
def test_an_interrupted_run_sends_nothing_more(service, writer, journal):
    watch = Watch(service)

    def interrupt(done, _):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out(
            plan(*(f"h-{number}" for number in range(40))),
            writer(),
            journal,
            concurrency=2,
            progress=interrupt,
        )
    sent = watch.calls[UPDATE]
    assert sent < 20
    assert Counter(outcomes(journal).values()) == {"written": sent, "not_written": 40 - sent}


@pytest.mark.parametrize("path", [READ, UPDATE])
def test_an_interrupted_run_waits_for_no_answer_for_long(service, writer, journal, monkeypatch, path):
    """A look that hangs is followed by no request, and a write that hangs is of unknown outcome."""
    monkeypatch.setattr(run, "GRACE_SECONDS", 0.2)
    answer, hanging = threading.Event(), threading.Event()

    def hang(request):
        if request.url.path.endswith(path) and "h-1" in str(request.state.parameters):
            hanging.set()
            answer.wait(10)

    watch = Watch(service, hang)

    def interrupt(*_):
        hanging.wait(10)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out(plan("h-0", "h-1"), writer(), journal, concurrency=2, progress=interrupt)
    assert outcomes(journal) == {"h-0": "written", "h-1": "intended"}
    answer.set()
    time.sleep(0.3)
    assert watch.calls[UPDATE] == (1 if path == READ else 2)


@pytest.mark.parametrize("journal", ["database"], indirect=True)
@pytest.mark.parametrize("concurrency", [1, 4])
def test_who_has_lost_the_lock_sends_nothing_more(
    service, state, writer, journal, postgres, tables, tmp_path, concurrency
):
    """With the session of the journal the lock is lost, and somebody else may be writing."""

    def cut_off(_):
        postgres.cut_off(journal.place.rpartition("/")[2])
        time.sleep(0.2)  # whoever has looked at a host by now would send

    watch = Watch(service, on_update(cut_off))
    planned = plan(*(f"h-{number}" for number in range(20)))
    # A question that crosses the server's last word may leave that word unread.
    said = r"(terminating connection|server closed the connection).*so nothing more is sent to the inventory"
    with pytest.raises(AssetOwnersError, match=said):
        carry_out(planned, writer(), journal, concurrency=concurrency)
    sent = watch.calls[UPDATE]
    assert 1 <= sent <= concurrency
    with opened(tmp_path) as journal_of_next_run:
        assert settle_leftovers(journal_of_next_run, tables, listed(state), instance().target) == 20
    assert Counter(tables.run_writes("run-1")["outcome"]) == {"written": sent, "not_written": 20 - sent}


@pytest.mark.parametrize("journal", ["database"], indirect=True)
def test_who_loses_the_lock_between_look_and_request_sends_nothing(service, writer, journal, postgres):
    def cut_off(request):
        if request.url.path.endswith(READ):
            postgres.cut_off(journal.place.rpartition("/")[2])

    watch = Watch(service, cut_off)
    with pytest.raises(AssetOwnersError, match="so nothing more is sent to the inventory"):
        carry_out(plan("h-0", "h-1", old=values(department="Old")), writer(), journal, concurrency=1)
    assert (watch.calls[READ], watch.calls[UPDATE]) == (1, 0)


def test_a_run_that_is_interrupted_while_its_threads_begin_sends_nothing_more(
    service, writer, journal, monkeypatch
):
    watch, begun = Watch(service), []

    class Interrupted(threading.Thread):
        def start(self):
            if begun:
                raise KeyboardInterrupt
            begun.append(self)
            super().start()

    monkeypatch.setattr(run, "Thread", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        carry_out(plan(*(f"h-{number}" for number in range(40))), writer(), journal, concurrency=2)
    sent = watch.calls[UPDATE]
    assert sent < 20
    assert Counter(outcomes(journal).values()) == Counter({"written": sent, "not_written": 40 - sent})


# Runs that were cut off


def listed(state):
    return hosts(
        *(
            host(
                item["id"],
                item["search_agent_name"],
                owners=(item["asset_owner"],) if item["asset_owner"] else (),
            )
            for item in state.assets("host")
        )
    )


KILLED = """
import sys
from pathlib import Path
from tests.resources.writeback.test_writer import (
    carry_out, client, hosts, instance, opened, plan, seen, Writer
)

folder = Path(sys.argv[1])
with opened(folder) as journal, client(folder, sys.argv[2]) as inventory:
    planned = plan(*(f"h-{number}" for number in range(10)))
    carry_out(planned, Writer(seen(inventory, instance(), hosts), journal), journal, concurrency=1)
"""


@IN_FILE_AND_DATABASE
def test_a_killed_run_is_settled_from_what_the_inventory_holds(service, state, journal, tables, tmp_path):
    hanging, killed = threading.Event(), threading.Event()

    def hang(request):
        """The write is done, and the run is killed before it hears so."""
        if request.state.parameters["id"] == "h-4":
            hanging.set()
            killed.wait(10)

    service.hooks.after = on_update(hang)
    run = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path, service.url], cwd=ROOT)  # noqa: S603 (ours)
    try:
        assert hanging.wait(60)
        while Counter(outcomes(journal).values())["written"] < 4:  # the fourth is taken in meanwhile
            time.sleep(0.05)
    finally:
        run.kill()
        killed.set()
        assert run.wait() == -signal.SIGKILL
    found = outcomes(journal)
    assert [found[f"h-{number}"] for number in range(10)] == ["written"] * 4 + ["intended"] * 6
    assert settle_leftovers(journal, tables, listed(state), instance().target) == 6
    assert list(journal.targets()) == []
    rows = tables.run_writes("run-1").sort("host_id")
    assert rows["outcome"].to_list() == ["written"] * 5 + ["not_written"] * 5
    assert rows["completed_at"].null_count() == 0
    assert rows["message"].to_list()[4:6] == [
        "the run was cut off; the inventory holds the value",
        "the run was cut off before this host's turn",
    ]


WRITTEN = {"old": values(department="Old"), "new": values("u-1", "Sales")}
UNDONE = {"old": values("u-1", "Sales"), "new": values("", "Old")}
DEPARTMENT_UNDONE = {"old": values("u-2", "Sales"), "new": values(None, "Old")}


def holding(host_id, owner=None, department=None):
    owners = tuple(owner.split(",")) if owner else ()
    return host(
        host_id,
        host_id.replace("h-", "PC-"),
        owners=owners,
        **({"department": department} if department else {}),
    )


@pytest.mark.parametrize(
    ("sent", "held", "outcome"),
    [
        (WRITTEN, [holding("h-0", None, "Old")], "not_written"),
        (WRITTEN, [holding("h-0", "u-2")], "not_written"),
        (WRITTEN, [holding("h-0", "u-1", "Sales")], "written"),
        (WRITTEN, [holding("h-0", "u-2,u-1")], "written"),
        (WRITTEN, [holding("h-0", "u-1", "changed since")], "written"),
        (UNDONE, [holding("h-0", "u-1", "Sales")], "not_written"),
        (UNDONE, [holding("h-0", "u-2", "changed, too")], "not_written"),
        (UNDONE, [holding("h-0", None, "Old")], "undone"),
        (UNDONE, [holding("h-0", "u-2", "Old")], "undone"),
        (DEPARTMENT_UNDONE, [holding("h-0", "u-2", "Sales")], "not_written"),
        (DEPARTMENT_UNDONE, [holding("h-0", "u-2", "Old")], "undone"),
    ],
)
def test_what_was_sent_when_a_run_was_cut_off_is_settled_by_what_the_host_holds(
    journal, tables, sent, held, outcome
):
    journal.intend(plan("h-0", **WRITTEN).with_columns(outcome=pl.lit("intended")))
    journal.attempting("run-1", "h-0")
    journal.sending("run-1", "h-0", old_values=sent["old"], new_values=sent["new"])
    assert settle_leftovers(journal, tables, hosts(*held), instance().target) == 1
    stored = tables.run_writes("run-1").row(0, named=True)
    told = (stored["outcome"], stored["old_values"], stored["new_values"])
    assert told == (outcome, sent["old"], sent["new"])


@IN_FILE_AND_DATABASE
def test_a_write_on_a_host_that_the_list_lacks_is_settled_by_reading_the_host(state, writer, journal, tables):
    """A list may be empty for a moment: that says nothing of what was written."""
    journal.intend(plan("h-0", "h-1", "h-9").with_columns(outcome=pl.lit("intended")))
    for host_id in ("h-0", "h-1", "h-9"):
        journal.attempting("run-1", host_id)
    assert settle_leftovers(journal, tables, hosts(), instance().target) == 0
    assert "run-1" in journal.targets(), "it stays open where no host can be read"
    state.set_field("h-0", "asset_owner", "u-1")
    inventory = writer()._inventory
    assert settle_leftovers(journal, tables, hosts(), instance().target, inventory) == 3
    assert tables.run_writes("run-1").sort("host_id")["outcome"].to_list() == [
        "written",
        "not_written",
        "not_written",
    ]


@IN_FILE_AND_DATABASE
def test_a_lost_answer_is_still_told_when_the_write_is_settled(journal, tables):
    journal.intend(plan("h-0", "h-1").with_columns(outcome=pl.lit("intended")))
    for host_id in ("h-0", "h-1"):
        journal.attempting("run-1", host_id)
        journal.sending("run-1", host_id, old_values=WRITTEN["old"], new_values=WRITTEN["new"])
        journal.complete(Result(host_id, "intended", "Reset."), run_id="run-1", completed_at=NOON)
    assert (
        settle_leftovers(journal, tables, hosts(holding("h-0", "u-1"), holding("h-1")), instance().target)
        == 2
    )
    assert tables.run_writes("run-1").sort("host_id").select("outcome", "message").rows() == [
        ("written", "Reset.; the inventory holds the value"),
        ("not_written", "Reset.; the inventory does not hold the value"),
    ]


@IN_FILE_AND_DATABASE
def test_a_host_that_was_sent_nothing_was_not_written_whoever_gave_it_the_owner(journal, tables):
    journal.intend(plan("h-0").with_columns(outcome=pl.lit("intended")))
    assert settle_leftovers(journal, tables, hosts(holding("h-0", "u-1")), instance().target) == 1
    assert tables.run_writes("run-1")["outcome"].to_list() == ["not_written"]


@IN_FILE_AND_DATABASE
def test_after_a_loss_of_power_the_inventory_alone_tells(journal, tables, monkeypatch):
    """What was sent is not on disk at once, so the journal may not know of it."""
    journal.intend(plan("h-0", "h-1").with_columns(outcome=pl.lit("intended")))
    monkeypatch.setattr(journal, "_boot", lambda: "the next start")
    assert (
        settle_leftovers(journal, tables, hosts(holding("h-0", "u-1"), holding("h-1")), instance().target)
        == 2
    )
    assert tables.run_writes("run-1")["outcome"].to_list() == ["written", "not_written"]


@IN_FILE_AND_DATABASE
def test_leftovers_of_all_runs_are_settled_and_keep_what_was_known(journal, tables):
    journal.intend(plan("h-0", run_id="first").with_columns(outcome=pl.lit("intended")))
    journal.intend(plan("h-0", run_id="second").with_columns(outcome=pl.lit("failed"), message=pl.lit("No.")))
    assert settle_leftovers(journal, tables, hosts(holding("h-0")), instance().target) == 1
    stored = tables.writes().sort("run_id").collect()
    assert stored.select("run_id", "outcome").rows() == [("first", "not_written"), ("second", "failed")]
    assert stored["message"].to_list()[1] == "No."
    assert list(journal.targets()) == []


# Plans that are carried out later


@pytest.mark.parametrize(
    ("planned", "held", "outcome"),
    [
        ({}, holding("h-0", "u-1", "Sales"), "owned_meanwhile"),
        ({}, holding("h-0", None, "Old"), "planned"),
        ({}, host("h-0", "PC-0", owners=("u-1",), problem="odd"), "planned"),  # left to the look
        ({}, holding("h-1", "u-1"), "not_written"),  # gone
        ({}, host("h-0", "PC-9"), "failed"),  # another machine
        (UNDONE, holding("h-0", "u-1", "Sales"), "planned"),
        (UNDONE, holding("h-0", "u-2", "Sales"), "planned"),
        (UNDONE, holding("h-0", None, "Old"), "not_written"),
        (UNDONE, holding("h-0", "u-2", "Other"), "not_written"),
    ],
)
def test_what_others_have_done_before_a_plan_is_carried_out_is_not_tried(planned, held, outcome):
    left = without_changed_hosts(plan("h-0", **planned), hosts(held))
    assert left["outcome"].to_list() == [outcome]
    assert (left["completed_at"].null_count() == 0) == (outcome != "planned")
    assert validated(OwnerWrites, left).height == 1


def test_an_undo_says_which_fields_it_put_back_and_sends_no_others(service, state, writer):
    assert writer().write(row()).outcome == "written"
    state.set_field("h-0", "asset_owner", "u-2")
    result = writer().undo(undo_row())
    assert (result.outcome, result.old_values) == ("undone", values("u-2", "Sales"))
    assert result.new_values == values(None, "Old")
    watch = Watch(service)
    assert writer().undo(undo_row()).outcome == "not_written"
    assert watch.calls[UPDATE] == 0


def test_an_undo_whose_session_had_ended_puts_back_what_others_have_left_of_it(service, state, writer):
    """Somebody takes the owner away meanwhile; the department is still what we wrote."""
    assert writer().write(row()).outcome == "written"
    answers = [JSONResponse(SIGN_IN, 401)]

    def somebody_was_faster(_):
        if not answers:
            return None
        state.set_field("h-0", "asset_owner", None)
        return answers.pop()

    Watch(service, on_update(somebody_was_faster))
    result = writer().undo(undo_row())
    assert (result.outcome, result.new_values) == ("undone", values(None, "Old"))
    assert host_fields(state) == (None, "Old", None)


def test_an_undo_that_was_done_is_told_also_where_somebody_has_changed_a_field_since(service, state, patient):
    assert patient.write(row()).outcome == "written"

    def after(_):
        state.set_field("h-0", "asset_owner", "u-2")
        return JSONResponse(SLOW, 429)

    Watch(service)
    service.hooks.after = on_update(after)
    result = patient.undo(undo_row())
    assert (result.outcome, host_fields(state)) == ("undone", ("u-2", "Old", None))


def test_an_undo_does_not_send_a_value_that_the_write_had_not_changed(service, state, writer):
    assert writer().write(row(new=values("u-1", "Old"))).outcome == "written"
    state.set_field("h-0", "asset_owner", "u-2")
    watch = Watch(service)
    unchanged = row(old=values("u-1", "Old"), new=values("", "Old"))
    assert (writer().undo(unchanged).outcome, watch.calls[UPDATE]) == ("not_written", 0)


def test_a_connection_that_takes_long_to_stand_means_another_look(service, state, writer, monkeypatch):
    """The look closes its connection, and the next one stands only after somebody gave the host an owner."""
    connect, stalls = HTTPConnection.connect, []

    def slow(connection):
        if stalls == ["next"]:
            stalls.append("done")
            state.set_field("h-0", "asset_owner", "u-2")
            time.sleep(1.1)
        connect(connection)

    def close(request, response):
        if READ in request.url.path:
            response.headers["connection"] = "close"
            stalls[:] = stalls or ["next"]

    watch = Watch(service)
    service.hooks.after = close
    monkeypatch.setattr(HTTPConnection, "connect", slow)
    result = writer().write(row())
    assert (result.outcome, asked(watch)) == ("owned_meanwhile", {READ: 2})


def test_a_list_that_fails_is_no_look(service, tmp_path, journal):
    """Where no single host can be read: two were turned away, and each needs a list made since."""
    lists, clock = [hosts(host("h-0", "PC-0"), host("h-1", "PC-1"))], Clock()

    def listed():
        if lists:
            return lists.pop()
        raise ServiceError("the list failed")

    settings = instance(platform={**instance_content()["platform"], "contract": UNREADABLE})
    with client(tmp_path, service.url, contract=UNREADABLE) as inventory:
        guarded = Writer(seen(inventory, settings, listed), journal, clock=clock, sleep=clock.sleep)
        turned_away_at = clock()
        clock.sleep(1)
        for host_id in ("h-0", "h-1"):
            with pytest.raises(ServiceError, match="the list failed"):
                guarded._look(row(host_id), not_before=turned_away_at)


@IN_FILE_AND_DATABASE
def test_the_journal_knows_what_the_last_look_showed(service, state, writer, journal):
    """The first look differs from the plan, the second does not, and then the run dies."""
    journal.intend(plan("h-0").with_columns(outcome=pl.lit("intended")))
    state.set_field("h-0", "department", "New")
    seen = []

    def answer(_):
        seen.append(journal.rows("run-1")["old_values"][0]["department"])
        if len(seen) == 1:
            state.set_field("h-0", "department", "Old")
            return JSONResponse({"status": False, "message": "Slow.", "data": None}, 429)
        return None

    Watch(service, on_update(answer))
    assert writer().write(row()).outcome == "written"
    assert seen == ["New", "Old"]


@pytest.mark.parametrize("planned", ["pc-0", "pc-0.corp.example"])
def test_a_name_that_was_compared_otherwise_is_settled_all_the_same(journal, tables, planned):
    journal.intend(plan("h-0").with_columns(outcome=pl.lit("intended"), hostname=pl.lit(planned)))
    journal.attempting("run-1", "h-0")
    listed = hosts(host("h-0", "PC-0.corp.example", owners=("u-1",)))
    assert settle_leftovers(journal, tables, listed, instance().target) == 1
    assert tables.run_writes("run-1")["outcome"].to_list() == ["written"]


@pytest.mark.parametrize(
    ("owner", "outcome"), [("u-1", "written"), (None, "not_written"), ("u-2", "not_written")]
)
def test_a_host_with_another_name_by_now_is_settled_by_what_it_holds_and_told(
    journal, tables, owner, outcome
):
    journal.intend(plan("h-0").with_columns(outcome=pl.lit("intended")))
    journal.attempting("run-1", "h-0")
    renamed = host("h-0", "PC-9", owners=(owner,) if owner else ())
    assert settle_leftovers(journal, tables, hosts(renamed), instance().target) == 1
    settled = tables.run_writes("run-1").row(0, named=True)
    assert settled["outcome"] == outcome
    assert settled["message"].endswith(", and another name: the id may belong to another machine by now")


def test_an_undo_on_a_host_with_another_name_by_now_was_not_carried_out(journal, tables):
    """A new machine under the id holds nothing of what was written either."""
    journal.intend(plan("h-0", **UNDONE).with_columns(outcome=pl.lit("intended")))
    journal.attempting("run-1", "h-0")
    assert (
        settle_leftovers(journal, tables, hosts(host("h-0", "PC-9", department="Old")), instance().target)
        == 1
    )
    assert tables.run_writes("run-1")["outcome"].to_list() == ["not_written"]
