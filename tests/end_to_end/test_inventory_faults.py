"""The inventory service is overloaded, forgets sessions, changes meanwhile, or refuses to write."""

import contextlib
import json
import threading
import time
from collections import Counter
from dataclasses import replace
from threading import Event

import pytest
from starlette.responses import HTMLResponse, JSONResponse

from sandbox.inventory import BrokenOff
from sandbox.inventory_api import COOKIE, envelope
from tests.end_to_end.stand import ADMIN, HOSTS, READER, TENANT, USERS, WRITTEN

LOGIN = "/api/v1/auth/login"
LIST = "/api/v1/assets/list"
READ = "/api/v1/assets/get"
UPDATE = "/api/v1/assets/update"

BAD_GATEWAY = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"


def same_name(numbers):
    """Host assets that all bear the name of Ann's machine."""
    return [{"id": f"t-{number:03}", "search_agent_name": "pc-1"} for number in numbers]


def rows(stand, ran):
    frame = stand.tables.run_writes(ran.report["run_id"])
    return {row["host_id"]: (row["outcome"], row["message"]) for row in frame.to_dicts()}


def overloaded():
    return JSONResponse(envelope(status=False, message="Slow down."), 429, {"Retry-After": "7"})


def bad_gateway():
    return HTMLResponse(BAD_GATEWAY, 502)


def broken():
    return JSONResponse(envelope(status=False, message="It broke."), 500)


def refusal(message):
    return lambda: JSONResponse(envelope(status=False, message=message))


def answering(stand, path, answer, *, times=1, host=None):
    """Let the service answer the first calls of a path, about one host where it is named, in its own way."""
    seen = []

    def fault(request):
        about = request.state.parameters.get("id")
        if request.url.path != path or (host and about != host) or len(seen) >= times:
            return None
        seen.append(request)
        return answer()

    stand.inventory.hooks.faults = fault
    return seen


# Sessions


class Sessions:
    """What the service saw: log-ins, the most of them at a time, and rejections of each cookie."""

    def __init__(self, hooks):
        self.log_ins = self.most_log_ins = self._logging_in = 0
        self.rejections: Counter[str] = Counter()
        self._lock = threading.Lock()
        hooks.faults, hooks.after = self._before, self._after

    def _before(self, request):
        if request.url.path == LOGIN:
            with self._lock:
                self.log_ins += 1
                self._logging_in += 1
                self.most_log_ins = max(self.most_log_ins, self._logging_in)

    def _after(self, request, response):
        with self._lock:
            if request.url.path == LOGIN:
                self._logging_in -= 1
            elif response.status_code == 401:
                self.rejections[request.cookies.get(COOKIE, "none")] += 1


def test_many_requests_survive_sessions_that_end_every_few_calls(stand, start):
    calls = 20
    stand.begin(same_name(range(60)), USERS)
    service = start(session_calls=calls, page_size_cap=4)
    sessions = Sessions(service.hooks)
    ran = stand.run({"platform": {"url": service.url}, "writes": {"concurrency": 6}})
    assert (ran.status, ran.report["writes"]) == (0, {"written": 60}), ran.stderr
    assert len(stand.written()) == 60
    assert sessions.most_log_ins == 1
    cookies = {cookie: count for cookie, count in sessions.rejections.items() if cookie != "none"}
    assert sessions.log_ins == len(cookies) + 1, "a rejected session is followed by one log-in"
    assert len(cookies) >= 120 // (calls + 6)
    assert max(cookies.values()) <= 6, (
        "each of the six may have been on its way with it, and none sends it again"
    )


def test_sessions_that_last_for_one_request_end_the_run_after_two_tries_of_each(stand, start):
    stand.begin(same_name(range(60)), USERS)
    service = start(session_calls=1, page_size_cap=4)
    together = threading.Barrier(4)
    pages: Counter[str] = Counter()
    lock = threading.Lock()

    def hold(request):
        if request.url.path != LIST:
            return
        page = f"{request.state.parameters['type']} {request.state.parameters['page']}"
        with lock:
            pages[page] += 1
            several = page in {f"host {number}" for number in range(2, 6)} and pages[page] == 1
        if several:
            with contextlib.suppress(threading.BrokenBarrierError):
                together.wait(10)  # with one session, which the first of them uses up

    service.hooks.faults = hold
    ran = stand.run({"platform": {"url": service.url}})
    assert (ran.status, ran.report["writes"]) == (1, {})
    assert "its sessions do not last; check how long" in ran.report["error"]
    assert max(pages.values()) <= 2
    assert stand.written() == {}


def test_a_service_that_forgets_every_session_ends_the_run_after_one_more_log_in(stand, start):
    service = start(session_calls=0)
    sessions = Sessions(service.hooks)
    ran = stand.run({"platform": {"url": service.url}})
    assert (ran.status, ran.report["writes"]) == (1, {})
    assert "right after the log-in of integration@corp.example" in ran.report["error"]
    assert sessions.log_ins == 2
    assert max(sessions.rejections.values()) <= 2


# Overload and failures


def test_reads_are_tried_again(stand, clock):
    calls: Counter[str] = Counter()

    def fail_twice(request):
        path = request.url.path
        calls[path] += 1
        return {1: overloaded, 2: bad_gateway}[calls[path]]() if path != UPDATE and calls[path] <= 2 else None

    stand.inventory.hooks.faults = fail_twice
    slept = clock.slept
    ran = stand.run()
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2}), ran.stderr
    assert stand.written() == WRITTEN
    assert min(calls[path] for path in (LOGIN, LIST, READ)) >= 3
    assert clock.slept - slept >= 3 * 7, "as long as the service asks for"


def test_a_failure_that_does_not_end_is_told_and_writes_nothing(stand):
    for failure, words in (
        (overloaded, "HTTP status 429: "),
        (bad_gateway, "HTTP status 502: <html><head><title>502 Bad"),
    ):
        answering(stand, LIST, failure, times=1000)
        ran = stand.run()
        assert (ran.status, ran.report["writes"]) == (1, {})
        told = f"The inventory service at {stand.inventory.url} answered {LIST} with {words}"
        assert told in ran.report["error"]
    assert stand.inventory.state.journal() == []
    stand.inventory.hooks.faults = None
    assert stand.run().report["writes"] == {"written": 2}
    assert stand.written() == WRITTEN


def test_writes_with_answers_that_tell_nothing_are_read_back_and_not_sent_again(stand):
    stand.begin(same_name(range(5)), USERS)
    failures = {"t-000": broken, "t-001": bad_gateway, "t-002": broken, "t-003": bad_gateway}
    applied = ["t-002", "t-003"]
    sent: Counter[str] = Counter()

    def answer(request, *response):
        host = request.state.parameters.get("id")
        if request.url.path != UPDATE or host not in failures or (host in applied) != bool(response):
            return None
        sent[host] += 1
        return failures[host]()

    stand.inventory.hooks.faults = stand.inventory.hooks.after = answer
    ran = stand.run()
    assert (ran.status, ran.report["writes"]) == (0, {"intended": 2, "written": 3}), ran.stderr
    assert "warning: 2 writes have no known outcome; the next run settles them" in ran.stderr
    assert sent == dict.fromkeys(failures, 1)
    told = rows(stand, ran)
    for host in failures:
        outcome, message = told[host]
        assert (outcome, "HTTP status" in message) == ("written" if host in applied else "intended", True)
        assert message.startswith("confirmed by reading back; the answer was lost: ") == (host in applied)

    stand.inventory.hooks.faults = stand.inventory.hooks.after = None
    assert stand.run().report["writes"] == {"written": 2}
    assert stand.written().keys() == {host["id"] for host in same_name(range(5))}, "each in one request"
    assert rows(stand, ran)["t-000"] == (
        "not_written",
        f"{told['t-000'][1]}; the inventory does not hold the value",
    )


class Limit:
    """Lets the service take so many writes in each second of the clock, and refuse the rest."""

    def __init__(self, hooks, per_second, headers):
        self.refused = 0
        self._taken: Counter[int] = Counter()
        self._per_second, self._headers = per_second, headers
        self._lock = threading.Lock()
        hooks.faults = self._before

    def _before(self, request):
        if request.url.path != UPDATE:
            return None
        with self._lock:
            second = int(time.monotonic())
            if self._taken[second] < self._per_second:
                self._taken[second] += 1
                return None
            self.refused += 1
        return JSONResponse(envelope(status=False, message="Slow down."), 429, self._headers)


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "1"}], ids=["without a time", "in a second"])
def test_a_service_that_takes_twenty_writes_a_second_gets_two_hundred_in_one_run(stand, headers):
    stand.begin(same_name(range(200)), USERS)
    limit = Limit(stand.inventory.hooks, 20, headers)
    began = time.monotonic()
    ran = stand.run()
    assert (ran.status, ran.report["writes"]) == (0, {"written": 200}), ran.stderr
    assert len(stand.written()) == 200
    assert limit.refused <= 200
    assert time.monotonic() - began < 60, "ten seconds at best, and what else a run does"


# What others do meanwhile


def test_a_list_that_changes_while_it_is_read_is_read_again_and_is_whole(stand, start):
    stand.begin(same_name(range(20)), USERS)
    service = start(page_size_cap=5)
    pages = []

    def grow(request):
        if request.url.path == LIST and request.state.parameters["type"] == "host":
            pages.append(request)
            if len(pages) == 3:
                stand.inventory.state.add_assets(TENANT, "host", same_name(range(20, 27)))

    service.hooks.faults = grow
    ran = stand.run({"platform": {"url": service.url}})
    assert (ran.status, ran.report["writes"]) == (0, {"written": 27}), ran.stderr
    assert stand.written().keys() == {host["id"] for host in same_name(range(27))}


def test_a_list_that_never_stops_changing_is_not_used(stand, start):
    stand.begin(same_name(range(20)), USERS)
    service = start(page_size_cap=5)
    pages = []

    def grow(request):
        if request.url.path == LIST and request.state.parameters["type"] == "host":
            pages.append(request)
            stand.inventory.state.add_assets(TENANT, "host", same_name([100 + len(pages)]))

    service.hooks.faults = grow
    ran = stand.run({"platform": {"url": service.url}})
    assert (ran.status, ran.report["writes"]) == (1, {})
    assert "a list with gaps is not used" in ran.report["error"]
    assert stand.written() == {}


def test_an_owner_who_comes_while_a_write_is_lost_stays_and_is_told(stand):
    """The service lost the write, and somebody was faster: to send it again would overwrite."""

    def somebody_was_faster(request):
        if request.url.path == UPDATE and request.state.parameters["id"] == "h-1":
            stand.inventory.state.set_field("h-1", "asset_owner", "cyd")
            return BrokenOff()
        return None

    stand.inventory.hooks.faults = somebody_was_faster
    ran = stand.run()
    assert (ran.status, ran.report["writes"]) == (0, {"intended": 1, "written": 1}), ran.stderr
    stand.inventory.hooks.faults = None
    assert stand.run().report["writes"] == {}
    outcome, message = rows(stand, ran)["h-1"]
    assert (outcome, "; the inventory does not hold the value" in message) == ("not_written", True)
    assert stand.inventory.state.asset("h-1")["asset_owner"] == "cyd"
    assert stand.written() == {"h-2": WRITTEN["h-2"]}


def test_each_host_is_read_right_before_it_is_written(stand):
    """The window in which a person's owner could be overwritten: one answer and one request."""
    stand.begin(same_name(range(40)), USERS)
    calls = []

    def note(request):
        if request.url.path in {READ, UPDATE}:
            calls.append((request.url.path, request.state.parameters["id"]))

    stand.inventory.hooks.faults = note
    ran = stand.run({"writes": {"concurrency": 4}})
    assert ran.report["writes"] == {"written": 40}, ran.stderr
    for place, (path, host) in enumerate(calls):
        if path == UPDATE:
            between = calls[calls.index((READ, host)) : place]
            assert sum(path == UPDATE for path, _ in between) <= 2 * 4, "at most what the other threads did"


# Refused writes


def test_refused_writes_are_one_row_each_and_the_run_succeeds_with_a_warning(stand):
    names = {"h-1": "pc-1", "h-2": "pc-2", "h-3": "pc-2", "h-4": "pc-2"}
    stand.begin([{"id": host, "search_agent_name": name} for host, name in names.items()], USERS)
    gone = JSONResponse(envelope(status=False, message="There is no such asset."), 404)
    answers = {("h-2", UPDATE): refusal("The asset was not found.")(), ("h-3", READ): gone}
    stand.inventory.hooks.faults = lambda request: answers.get(
        (request.state.parameters.get("id"), request.url.path)
    )
    # Of the two owners Ann alone has a criticality.
    ran = stand.run({"platform": {"contract": {"enrich_fields": {"criticality": "no_such_field"}}}})
    assert (ran.status, ran.report["writes"]) == (0, {"failed": 3, "written": 1}), ran.stderr
    assert "warning: 3 writes failed; owner_writes has their messages" in ran.stderr
    assert stand.written().keys() == {"h-4"}
    told = rows(stand, ran)
    for host, words in {
        "h-1": "no_such_field: There is no such field.",
        "h-2": "The asset was not found.",
        "h-3": "There is no such asset.",
    }.items():
        assert (told[host][0], words in told[host][1]) == ("failed", True), told[host]

    stand.inventory.hooks.faults = None
    again = stand.run()
    assert (again.status, again.report["writes"]) == (0, {"written": 3}), "left for the next run"


def test_an_account_that_may_not_write_is_told_host_by_host(stand):
    (stand.home / "reader").write_text(READER.password)
    ran = stand.run({"platform": {"email": READER.email, "password": {"file": "reader"}}})
    assert (ran.status, ran.report["writes"]) == (0, {"failed": 2}), ran.stderr
    assert all(
        "You do not have permission to do this." in message for _, message in rows(stand, ran).values()
    )
    assert stand.inventory.state.journal() == []


def test_an_account_that_is_closed_while_hosts_are_written_ends_the_run_at_once(stand):
    """Log-ins that are refused again and again lock an account, and a row for each host tells nothing new."""
    stand.begin(same_name(range(30)), USERS)
    sessions = Sessions(stand.inventory.hooks)
    count_log_ins = stand.inventory.hooks.faults
    closed = []

    def close_the_account(request):
        count_log_ins(request)
        if request.url.path == UPDATE and request.state.parameters["id"] == "t-003" and not closed:
            closed.append(True)
            stand.inventory.state.accounts.expire_sessions()
        return refusal("Unknown user or password.")() if closed and request.url.path == LOGIN else None

    stand.inventory.hooks.faults = close_the_account
    ran = stand.run({"writes": {"concurrency": 4}})
    assert ran.status == 1
    assert f"refused the log-in of {ADMIN.email}" in ran.report["error"]
    assert "the run ended, the rest is left for the next run" in ran.report["error"]
    assert sessions.log_ins == 2
    on_their_way = ran.report["writes"].get("failed", 0) + ran.report["writes"].get("intended", 0)
    assert 1 <= on_their_way <= 4
    assert ran.report["writes"]["not_written"] >= 20

    stand.inventory.hooks.faults = None
    again = stand.run()
    assert again.report["writes"] == {"written": 30 - ran.report["writes"].get("written", 0)}
    assert len(stand.written()) == 30


# Failures one after another


def refusing(stand, refused, *, held=None, until=None):
    """Refuse the writes of some hosts; answer the one that is held a while after that of another host."""
    answered = Event()

    def fault(request):
        host = request.state.parameters.get("id")
        if request.url.path != UPDATE:
            return None
        if host == held:
            assert answered.wait(20)
            time.sleep(0.5)
        return refusal("Locked.")() if host in refused else None

    def after(request, _):
        if request.url.path == UPDATE and request.state.parameters["id"] == until:
            answered.set()

    stand.inventory.hooks.faults, stand.inventory.hooks.after = fault, after


def test_so_many_failures_one_after_another_end_the_run_and_the_next_run_writes_the_rest(stand):
    hosts = same_name(range(10))
    stand.begin(hosts, USERS)
    refusing(stand, {host["id"] for host in hosts[1:]})
    ran = stand.run({"writes": {"max_failed_writes": 3, "concurrency": 1}})
    assert (ran.status, ran.report["writes"]) == (1, {"failed": 3, "not_written": 6, "written": 1})
    assert "3 writes failed one after another; the run ended" in ran.report["error"]
    assert rows(stand, ran)["t-009"] == (
        "not_written",
        "the run ended before this host's turn: 3 writes failed one after another",
    )

    stand.inventory.hooks.faults = None
    again = stand.run()
    assert (again.status, again.report["writes"]) == (0, {"written": 9})
    assert len(stand.written()) == 10


@pytest.mark.parametrize(
    ("refused", "held", "status"),
    [(["t-000", "t-002"], "t-000", 1), (["t-000", "t-001"], "t-001", 0)],
    ids=["apart in the plan, together in time", "together in the plan, apart in time"],
)
def test_failures_follow_one_another_in_the_order_in_which_they_become_known(stand, refused, held, status):
    stand.begin(same_name(range(3)), USERS)
    refusing(stand, refused, held=held, until="t-002")
    ran = stand.run({"writes": {"max_failed_writes": 2, "concurrency": 2}})
    assert (ran.status, ran.report["writes"]) == (status, {"failed": 2, "written": 1}), ran.stderr


def test_a_host_that_somebody_took_is_no_success_between_two_failures(stand):
    stand.begin(same_name(range(4)), USERS)

    def refuse_or_take(request):
        host = request.state.parameters.get("id")
        if request.url.path == READ and host == "t-001":
            stand.inventory.state.set_field(host, "asset_owner", "cyd")
        return refusal("Locked.")() if request.url.path == UPDATE else None

    stand.inventory.hooks.faults = refuse_or_take
    ran = stand.run({"writes": {"max_failed_writes": 2, "concurrency": 1}})
    assert (ran.status, ran.report["writes"]) == (1, {"failed": 2, "not_written": 1, "owned_meanwhile": 1})


# "Yes" is checked, and so is the look that guards the writes


def test_a_service_that_says_yes_and_sets_nothing_ends_the_run_with_the_setting_to_mend(stand):
    stand.begin(same_name(range(40)), USERS)
    sent = answering(stand, UPDATE, lambda: JSONResponse(envelope()), times=1000)
    ran = stand.run()
    assert (ran.status, ran.report["writes"].keys()) == (1, {"intended", "not_written"})
    assert "none of the hosts holds the value; check platform.contract.update" in ran.report["error"]
    assert "platform_user_field (asset_owner)" in ran.report["error"]
    assert len(sent) <= 3 + 8, "three that are read back, and those that were on their way"


def test_a_service_that_sets_nothing_is_found_by_a_list_where_it_reads_no_single_host(stand):
    answering(stand, UPDATE, lambda: JSONResponse(envelope()), times=1000)
    ran = stand.run({"platform": {"contract": {"read": None}}})
    assert (ran.status, ran.report["writes"]) == (1, {"intended": 2})
    assert "said yes to 2 writes, and none of the hosts holds the value" in ran.report["error"]


def test_an_undo_that_is_not_carried_out_is_told(stand):
    run_id = stand.run().report["run_id"]
    answering(stand, UPDATE, lambda: JSONResponse(envelope()), times=1000)
    undone = stand.call("undo", "--instance", stand.instance_file(), run_id)
    assert undone.exit_code == 1
    assert "none of the hosts holds the value" in undone.stderr


def bury(request, response):
    """Give the fields of single assets deeper than those of lists."""
    if request.url.path == READ:
        body = json.loads(response.body)
        return JSONResponse({**body, "data": {"id": body["data"]["id"], "fields": body["data"]}})
    return None


def test_a_plan_is_not_carried_out_either_by_a_look_that_shows_no_owners(stand):
    """After dry runs alone: no list was ever published."""
    plan = stand.run({}, "--dry-run").report["run_id"]
    stand.inventory.hooks.after = bury
    applied = stand.call("apply", "--instance", stand.instance_file(), plan)
    assert applied.exit_code == 1
    assert "The list shows owners of the hosts" in applied.stderr
    assert stand.written() == {}


def test_an_odd_asset_with_an_owner_is_no_measure_of_the_look(stand):
    odd = {"id": "h-0", "search_agent_name": "PC-0", "asset_owner": "cyd", "department": {"name": "Sales"}}
    stand.begin([odd, *HOSTS], USERS)
    ran = stand.run()
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2}), ran.stderr


def test_a_look_that_shows_no_owners_keeps_a_run_from_writing(stand):
    """Owners lie deeper in what one asset is read as than in the list: the guard would see none."""
    stand.begin([*HOSTS, {"id": "h-5", "search_agent_name": "pc-1", "asset_owner": "cyd"}], USERS)
    stand.inventory.hooks.after = bury
    ran = stand.run()
    assert (ran.status, ran.report["writes"]) == (1, {"planned": 2})
    assert "The list shows owners of the hosts" in ran.report["error"]
    assert "platform.contract.read" in ran.report["error"]
    assert stand.written() == {}


# Writes of another target


def test_what_was_cut_off_elsewhere_stays_open_until_the_instance_points_there_again(stand):
    account = replace(ADMIN, roles={**ADMIN.roles, "t-2": "admin"})
    state = stand.inventory.state
    state.reset([account], HOSTS, USERS, TENANT)
    state.add_assets("t-2", "host", [{"id": "other", "search_agent_name": "pc-9", "asset_owner": None}])
    state.add_assets("t-2", "user", [{"id": "zoe", "user_email": "zoe@corp.example"}])
    answering(stand, UPDATE, BrokenOff, times=2)
    first = stand.run()
    assert first.report["writes"] == {"intended": 2}

    elsewhere = {"platform": {"tenant_id": "t-2"}}
    second = stand.run(elsewhere)
    assert second.status == 0, second.stderr
    warning = next(line for line in second.stderr.splitlines() if "have no known outcome" in line)
    assert f"2 writes of run {first.report['run_id']} to {stand.inventory.url} tenant t-1 " in warning
    assert f"it now points to {stand.inventory.url} tenant t-2 " in warning
    assert {outcome for outcome, _ in rows(stand, first).values()} == {"intended"}
    tried = stand.run(elsewhere, "--dry-run")
    assert "have no known outcome" in tried.stderr, "each run reports them"

    third = stand.run()
    assert "2 writes of an earlier run that had no known outcome are settled" in third.stderr
    assert {outcome for outcome, _ in rows(stand, first).values()} == {"not_written"}
    assert third.report["writes"] == {"written": 2}
