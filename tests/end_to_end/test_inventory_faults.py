"""The inventory service is overloaded, forgets sessions, changes meanwhile, or refuses to write."""

import threading
import time
from collections import Counter
from threading import Event

import pytest
from starlette.responses import HTMLResponse, JSONResponse

from sandbox.inventory import BrokenOff
from sandbox.inventory_api import COOKIE, envelope
from tests.end_to_end.stand import READER, TENANT, USERS, WRITTEN

LOGIN = "/api/v1/auth/login"
LIST = "/api/v1/assets/list"
READ = "/api/v1/assets/get"
UPDATE = "/api/v1/assets/update"

BAD_GATEWAY = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"


def twins(numbers):
    """Host assets that all bear the name of Ann's machine."""
    return [{"id": f"t-{number:03}", "search_agent_name": "pc-1"} for number in numbers]


def rows(stand, ran):
    frame = stand.tables.run_writes(ran.report["run_id"])
    return {row["host_id"]: (row["outcome"], row["message"]) for row in frame.to_dicts()}


def overloaded():
    return JSONResponse(envelope(status=False, message="Slow down."), 429, {"Retry-After": "7"})


def bad_gateway():
    return HTMLResponse(BAD_GATEWAY, 502)


def refusal(message):
    return lambda: JSONResponse(envelope(status=False, message=message))


FAILURES = {"429": overloaded, "502": bad_gateway}


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


@pytest.mark.parametrize("calls", [1, 7])
def test_many_requests_survive_sessions_that_end_every_few_calls(stand, start, calls):
    stand.begin(twins(range(60)), USERS)
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


def test_a_service_that_forgets_every_session_ends_the_run_after_one_more_log_in(stand, start):
    service = start(session_calls=0)
    sessions = Sessions(service.hooks)
    ran = stand.run({"platform": {"url": service.url}})
    assert (ran.status, ran.report["writes"]) == (1, {})
    assert "right after the log-in of integration@corp.example" in ran.report["error"]
    assert sessions.log_ins == 2
    assert max(sessions.rejections.values()) <= 2


# Overload and failures


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("path", [LOGIN, LIST, READ])
def test_reads_are_tried_again(stand, clock, path, failure):
    seen = answering(stand, path, FAILURES[failure], times=2)
    slept = clock.slept
    ran = stand.run()
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2}), ran.stderr
    assert stand.written() == WRITTEN
    assert len(seen) == 2
    if failure == "429":
        assert clock.slept - slept >= 14, "as long as the service asks for, twice"


@pytest.mark.parametrize(
    ("failure", "words"),
    [("429", "HTTP status 429: "), ("502", "HTTP status 502: <html><head><title>502 Bad")],
)
def test_a_failure_that_does_not_end_is_told_and_writes_nothing(stand, failure, words):
    answering(stand, LIST, FAILURES[failure], times=1000)
    ran = stand.run()
    assert (ran.status, ran.report["writes"]) == (1, {})
    assert (
        f"The inventory service at {stand.inventory.url} answered {LIST} with {words}" in ran.report["error"]
    )
    assert stand.inventory.state.journal() == []
    stand.inventory.hooks.faults = None
    assert stand.run().report["writes"] == {"written": 2}
    assert stand.written() == WRITTEN


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("applied", [True, False])
def test_a_write_with_an_answer_that_tells_nothing_is_read_back_and_not_sent_again(stand, failure, applied):
    sent = []

    def answer(request, *_):
        if request.url.path == UPDATE:
            sent.append(request.state.parameters["id"])
            return FAILURES[failure]() if len(sent) == 1 else None
        return None

    if applied:
        stand.inventory.hooks.after = answer
    else:
        stand.inventory.hooks.faults = answer
    ran = stand.run({"writes": {"concurrency": 1}})
    said = rows(stand, ran)["h-1"]
    assert sent == ["h-1", "h-2"]
    assert ran.status == 0
    if applied:
        assert said[0] == "written"
        assert said[1].startswith("confirmed by reading back; the answer was lost: ")
    else:
        assert (said[0], "HTTP status" in said[1]) == ("failed", True)
        assert "warning: 1 writes failed; owner_writes has their messages" in ran.stderr
        assert stand.run().report["writes"] == {"written": 1}
    assert stand.written() == WRITTEN


# What others do meanwhile


def test_a_list_that_changes_while_it_is_read_is_read_again_and_is_whole(stand, start):
    stand.begin(twins(range(20)), USERS)
    service = start(page_size_cap=5)
    pages = []

    def grow(request):
        if request.url.path == LIST and request.state.parameters["type"] == "host":
            pages.append(request)
            if len(pages) == 3:
                stand.inventory.state.add_assets(TENANT, "host", twins(range(20, 27)))

    service.hooks.faults = grow
    ran = stand.run({"platform": {"url": service.url}})
    assert (ran.status, ran.report["writes"]) == (0, {"written": 27}), ran.stderr
    assert stand.written().keys() == {host["id"] for host in twins(range(27))}


def test_a_list_that_never_stops_changing_is_not_used(stand, start):
    stand.begin(twins(range(20)), USERS)
    service = start(page_size_cap=5)
    pages = []

    def grow(request):
        if request.url.path == LIST and request.state.parameters["type"] == "host":
            pages.append(request)
            stand.inventory.state.add_assets(TENANT, "host", twins([100 + len(pages)]))

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
    assert (ran.status, ran.report["writes"]) == (0, {"owned_meanwhile": 1, "written": 1}), ran.stderr
    assert rows(stand, ran)["h-1"] == ("owned_meanwhile", "owned by cyd meanwhile")
    stand.inventory.hooks.faults = None
    assert stand.run().report["writes"] == {}
    assert stand.inventory.state.asset("h-1")["asset_owner"] == "cyd"
    assert stand.written() == {"h-2": WRITTEN["h-2"]}


def test_each_host_is_read_right_before_it_is_written(stand):
    """The window in which a person's owner could be overwritten: one answer and one request."""
    stand.begin(twins(range(40)), USERS)
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


def unknown_field(_):
    return {"platform": {"contract": {"enrich_fields": {"criticality": "no_such_field"}}}}


def no_permission(stand):
    (stand.home / "reader").write_text(READER.password)
    return {"platform": {"email": READER.email, "password": {"file": "reader"}}}


def not_found(stand):
    answering(stand, UPDATE, refusal("The asset was not found."), host="h-1")
    return {}


def gone_with_404(stand):
    gone = JSONResponse(envelope(status=False, message="There is no such asset."), 404)
    answering(stand, READ, lambda: gone, host="h-1")
    return {}


@pytest.mark.parametrize(
    ("arrange", "refused", "words"),
    [
        (unknown_field, ["h-1"], "no_such_field: There is no such field."),
        (no_permission, ["h-1", "h-2"], "You do not have permission to do this."),
        (not_found, ["h-1"], "The asset was not found."),
        (gone_with_404, ["h-1"], "There is no such asset."),
    ],
)
def test_refused_writes_are_one_row_each_and_the_run_succeeds_with_a_warning(stand, arrange, refused, words):
    ran = stand.run(arrange(stand))
    written = {host: fields for host, fields in WRITTEN.items() if host not in refused}
    assert ran.status == 0, ran.stderr
    assert ran.report["writes"] == Counter(["failed"] * len(refused) + ["written"] * len(written))
    assert f"warning: {len(refused)} writes failed; owner_writes has their messages" in ran.stderr
    assert stand.written() == written
    for host in refused:
        outcome, message = rows(stand, ran)[host]
        assert (outcome, words in message) == ("failed", True), message

    stand.inventory.hooks.faults = None
    again = stand.run()
    assert (again.status, again.report["writes"]) == (0, {"written": len(refused)}), "left for the next run"


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
    hosts = twins(range(10))
    stand.begin(hosts, USERS)
    refusing(stand, {host["id"] for host in hosts[1:]})
    ran = stand.run({"writes": {"max_failed_writes": 3, "concurrency": 1}})
    assert (ran.status, ran.report["writes"]) == (1, {"failed": 3, "not_written": 6, "written": 1})
    assert "3 writes failed one after another; the run ended" in ran.report["error"]
    assert rows(stand, ran)["t-009"] == ("not_written", "the run ended after 3 failures in a row")

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
    stand.begin(twins(range(3)), USERS)
    refusing(stand, refused, held=held, until="t-002")
    ran = stand.run({"writes": {"max_failed_writes": 2, "concurrency": 2}})
    assert (ran.status, ran.report["writes"]) == (status, {"failed": 2, "written": 1}), ran.stderr


def test_a_host_that_somebody_took_is_no_success_between_two_failures(stand):
    stand.begin(twins(range(4)), USERS)

    def refuse_or_take(request):
        host = request.state.parameters.get("id")
        if request.url.path == READ and host == "t-001":
            stand.inventory.state.set_field(host, "asset_owner", "cyd")
        return refusal("Locked.")() if request.url.path == UPDATE else None

    stand.inventory.hooks.faults = refuse_or_take
    ran = stand.run({"writes": {"max_failed_writes": 2, "concurrency": 1}})
    assert (ran.status, ran.report["writes"]) == (1, {"failed": 2, "not_written": 1, "owned_meanwhile": 1})
