"""The network fails: a run ends well or says what is wrong, and the next one makes good what it left."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import cycle
from threading import Event, Lock

import polars as pl
import pytest

from ownership.tables import TABLES
from resources.http import Transport
from tests import tcp_proxy
from tests.end_to_end.stand import USERS, WRITTEN, merged, patient
from tests.tcp_proxy import ALWAYS, Proxy

SEARCH = "/_search"
LIST = "/assets/list"
READ = "/assets/get"
UPDATE = "/assets/update"

SILENCE_SECONDS = 1.0
RESTART_SECONDS = 120  # at most; a busy machine takes 40
LATENCY = tcp_proxy.late(0.05)
LOST = {
    "too late": tcp_proxy.late(1.5 * SILENCE_SECONDS),
    "reset after": tcp_proxy.reset_after,
    "cut": tcp_proxy.cut,
    "trickle": tcp_proxy.trickle(0.1),
}
"""The service has applied the request, and its answer does not arrive."""

OF_THE_RUN = {
    "new_conflict",
    "run_id",
    "decided_at",
    "listed_at",
    "fetched_at",
    "settings_fingerprint",
    "action",
    "existing_owner",
}


class Line:
    """The small company behind two proxies."""

    def __init__(self, stand, search, inventory, ca_file):
        self.stand, self.search, self.inventory = stand, search, inventory
        self._settings = {"url": search.url, "ca_file": str(ca_file), "platform": {"url": inventory.url}}

    def run(self, **settings):
        return self.stand.run(merged(self._settings, settings))


@pytest.fixture
def line(stand, tmp_path):
    ca_file = tmp_path / "proxy.pem"
    with (
        Proxy(stand.engine.url, authority=stand.engine.ca_file, ca_file=ca_file) as search,
        Proxy(stand.inventory.url) as inventory,
    ):
        yield Line(stand, search, inventory, ca_file)


@pytest.fixture
def impatient(monkeypatch):
    """The clients lose patience after a second, not after minutes."""

    def transport(**arguments):
        return replace(
            Transport(**arguments),
            read_timeout_seconds=SILENCE_SECONDS,
            total_timeout_seconds=1.5 * SILENCE_SECONDS,
        )

    monkeypatch.setattr("resources.search.client.Transport", transport)
    monkeypatch.setattr("resources.inventory.client.Transport", transport)


class FirstTries:
    """The first try of each request meets a fault, one after another; a further one goes through."""

    def __init__(self, faults):
        self._faults = cycle(faults)
        self._lock = Lock()
        self.tries = Counter()
        self.met = {}

    def __call__(self, exchange):
        head, _, body = exchange.request.partition(b"\r\n\r\n")
        request = head.partition(b"\r\n")[0] + body
        with self._lock:
            self.tries[request] += 1
            first = self.tries[request] == 1
            fault = self.met.setdefault(request, next(self._faults)) if first else tcp_proxy.none
        fault(exchange)


def evidence(folder):
    """What the tables say; when and by which run, and the owners that a run has written, left out."""
    tables = {}
    for table in TABLES.keys() - {"inventory_hosts", "owner_decisions_history", "owner_writes", "runs"}:
        files = folder / table / "*.parquet" if (folder / table).is_dir() else folder / f"{table}.parquet"
        frame = pl.read_parquet(files)
        tables[table] = sorted(map(str, frame.drop(OF_THE_RUN & set(frame.columns)).rows()))
    return tables


@pytest.fixture
def undisturbed(tables_of_a_good_run):
    return evidence(tables_of_a_good_run)


def holds_what_an_undisturbed_run_gives(stand, undisturbed):
    assert stand.written() == WRITTEN, "each value sent once"
    assert evidence(stand.tables.folder) == undisturbed
    written = stand.tables.writes().filter(outcome="written").collect()
    assert sorted(written["host_id"]) == sorted(WRITTEN), "one row for each write"
    return True


@pytest.mark.usefixtures("impatient")
def test_reads_are_tried_again_whatever_befalls_the_first_try(line, undisturbed):
    faults = [tcp_proxy.reset_before, *LOST.values(), tcp_proxy.trickle_of_headers(0.1), LATENCY]
    searches, reads = FirstTries(faults), FirstTries(faults)
    line.search.misbehave(searches, at=SEARCH, times=ALWAYS)
    for place in (LIST, READ):
        line.inventory.misbehave(reads, at=place, times=ALWAYS)
    ran = line.run(platform={"contract": {"page_size": 1}})
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2}), ran.stderr
    assert holds_what_an_undisturbed_run_gives(line.stand, undisturbed)
    for requests in (searches, reads):
        assert {*requests.met.values()} == {*faults}, "each fault was met"
        assert [
            one for one, fault in requests.met.items() if fault != LATENCY and requests.tries[one] < 2
        ] == []


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("service", "place", "setting"), [("search", SEARCH, " url "), ("inventory", LIST, " platform.url ")]
)
def test_a_service_that_is_not_to_be_reached_is_named_and_the_next_run_makes_good(
    line, undisturbed, service, place, setting
):
    proxy = {"search": line.search, "inventory": line.inventory}[service]
    with proxy.refusing():
        refused = line.run()
    for fault in (*LOST.values(), tcp_proxy.reset_before):
        proxy.misbehave(fault, at=place)
    proxy.misbehave(tcp_proxy.reset_before, at=place, times=ALWAYS)
    lost = line.run()
    for ran in (refused, lost):
        assert (ran.status, ran.report["writes"]) == (1, {}), ran.stderr
        assert f"The {service} service at {proxy.url} did not answer" in ran.report["error"]
        assert f"check{setting}and the network" in ran.report["error"]
    assert "refused" in refused.report["error"]
    assert line.stand.inventory.state.journal() == []

    proxy.behave()
    assert line.run().status == 0
    assert holds_what_an_undisturbed_run_gives(line.stand, undisturbed)


@pytest.mark.usefixtures("impatient")
def test_writes_whose_answers_are_lost_are_read_back_and_never_sent_again(line):
    hosts = [{"id": f"t-{number}", "search_agent_name": "pc-1"} for number in range(6)]
    line.stand.begin(hosts, USERS)
    for fault in (*LOST.values(), tcp_proxy.reset_before):
        line.inventory.misbehave(fault, at=UPDATE)
    ran = line.run(writes={"concurrency": 1})
    assert (ran.status, ran.report["writes"]) == (0, {"intended": 1, "written": 5}), ran.stderr
    assert "warning: 1 writes have no known outcome; the next run settles them" in ran.stderr
    assert line.inventory.requests["/api/v1/assets/update"] == 6
    lost = f"The inventory service at {line.inventory.url} "
    rows = line.stand.tables.run_writes(ran.report["run_id"]).sort("host_id")
    messages = rows["message"].to_list()
    for message in messages[:4]:
        assert message.startswith(f"confirmed by reading back; the answer was lost: {lost}")
    assert (messages[4].startswith(lost), messages[5]) == (True, None)

    again = line.run()
    assert (again.status, again.report["writes"]) == (0, {"written": 1})
    assert line.stand.written().keys() == {host["id"] for host in hosts}, "each in one request"
    settled = line.stand.tables.run_writes(ran.report["run_id"]).filter(host_id="t-4")
    assert settled.select("outcome", "message").rows() == [
        ("not_written", f"{messages[4]}; the inventory does not hold the value")
    ]


def test_a_write_that_nobody_knows_about_is_settled_by_the_next_run(line, undisturbed):
    away = ExitStack()

    def leave(exchange):
        exchange.forward()
        away.enter_context(line.inventory.refusing())

    line.inventory.misbehave(leave, at=UPDATE)
    with away:
        ran = line.run(writes={"concurrency": 1})
    assert (ran.status, ran.report["writes"]) == (0, {"failed": 1, "intended": 1})
    assert "warning: 1 writes have no known outcome" in ran.stderr

    again = line.run()
    assert (again.status, again.report["writes"]) == (0, {"written": 1})
    assert "warning: 1 writes of an earlier run that had no known outcome are settled" in again.stderr
    assert holds_what_an_undisturbed_run_gives(line.stand, undisturbed)


def test_services_that_are_away_for_a_moment_are_waited_for(line, undisturbed):
    lock, gone, away = Lock(), Event(), ExitStack()

    def leave(proxy, exchange):
        exchange.forward()
        away.enter_context(proxy.refusing())
        gone.set()

    def wait(_):
        with lock:
            if gone.wait(1):  # not for a request whose connection broke beside the one that was befallen
                away.close()
                gone.clear()

    line.stand.overrides = replace(line.stand.overrides, resources=patient(sleep=wait))
    for place in (SEARCH, LIST, READ, UPDATE):
        proxy = line.search if place == SEARCH else line.inventory
        proxy.misbehave(partial(leave, proxy), at=place)
    ran = line.run(writes={"concurrency": 1})
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2}), ran.stderr
    assert holds_what_an_undisturbed_run_gives(line.stand, undisturbed)


def test_an_engine_that_is_restarted_during_the_run_is_waited_for(line, undisturbed):
    engine = line.stand.engine
    counting, stopped, waiting, back = (Event() for _ in range(4))

    def stop_the_engine(exchange):
        counting.set()
        assert stopped.wait(RESTART_SECONDS)
        exchange.forward()

    def wait(_):
        waiting.set()
        assert back.wait(RESTART_SECONDS)

    line.stand.overrides = replace(line.stand.overrides, resources=patient(sleep=wait))
    line.search.misbehave(tcp_proxy.none, at=SEARCH)  # the survey of days with events
    line.search.misbehave(stop_the_engine, at=SEARCH)
    with ThreadPoolExecutor(1) as pool, ExitStack() as whatever_happens:
        running = pool.submit(line.run)
        whatever_happens.callback(stopped.set)
        whatever_happens.callback(back.set)
        assert counting.wait(RESTART_SECONDS)
        engine.__exit__(None, None, None)
        stopped.set()
        assert waiting.wait(RESTART_SECONDS)
        engine._port = int(engine.url.rpartition(":")[2])
        engine.__enter__()  # in this thread, because an engine ends with the thread that started it
        back.set()
        ran = running.result()
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2}), ran.stderr
    assert holds_what_an_undisturbed_run_gives(line.stand, undisturbed)
