"""The network fails: a run ends well or says what is wrong, and the next one makes good what it left."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from threading import Event

import polars as pl
import pytest

from ownership.schemas import TABLES
from resources.http import Transport
from resources.inventory import InventoryClient
from resources.search import SearchClient
from tests import tcp_proxy
from tests.end_to_end.stand import WRITTEN
from tests.tcp_proxy import ALWAYS, Proxy

SEARCH = "/_search"
LIST = "/assets/list"
READ = "/assets/get"
UPDATE = "/assets/update"

SILENCE_SECONDS = 1.0
FAULTS = {
    "latency": tcp_proxy.late(0.2),
    "too late": tcp_proxy.late(1.5 * SILENCE_SECONDS),
    "reset before": tcp_proxy.reset_before,
    "reset after": tcp_proxy.reset_after,
    "cut": tcp_proxy.cut,
    "trickle": tcp_proxy.trickle(0.1),
}
LOST = ["too late", "reset after", "cut", "trickle"]
"""The service has applied the request, and its answer does not arrive."""

OF_THE_RUN = {
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
        return self.stand.run({**self._settings, **settings})


@pytest.fixture
def line(stand, tmp_path):
    ca_file = tmp_path / "proxy.pem"
    with (
        Proxy(stand.engine.url, authority=stand.engine.ca_file, ca_file=ca_file) as search,
        Proxy(stand.inventory.url) as inventory,
    ):
        yield Line(stand, search, inventory, ca_file)


@pytest.fixture
def fault(request, monkeypatch):
    """A fault of `FAULTS`; for one that takes time the clients lose patience after a second, not minutes."""

    def impatient(**arguments):
        return dataclasses.replace(
            Transport(**arguments),
            read_timeout_seconds=SILENCE_SECONDS,
            total_timeout_seconds=1.5 * SILENCE_SECONDS,
        )

    if request.param in {"too late", "trickle"}:
        monkeypatch.setattr("resources.search.Transport", impatient)
        monkeypatch.setattr("resources.inventory.Transport", impatient)
    return FAULTS[request.param]


def evidence(folder):
    """What the tables say; when and by which run, and the owners that a run has written, left out."""
    tables = {}
    for table in TABLES.keys() - {"inventory_hosts", "owner_writes"}:
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


@pytest.mark.parametrize("fault", FAULTS, indirect=True)
def test_a_read_that_fails_once_is_tried_again(line, undisturbed, fault):
    line.search.misbehave(fault, at=SEARCH)
    for path in (LIST, READ):
        line.inventory.misbehave(fault, at=path)
    ran = line.run()
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2}), ran.stderr
    assert holds_what_an_undisturbed_run_gives(line.stand, undisturbed)
    again = fault is not FAULTS["latency"]
    assert line.search.requests["/logs-small/_search"] == 5 + again, "a survey and four days"
    assert line.inventory.requests["/api/v1/assets/get"] == 2 + again


@pytest.mark.parametrize("fault", ["too late", "reset before", "cut", "trickle"], indirect=True)
@pytest.mark.parametrize("service", ["search", "inventory"])
def test_a_service_that_never_gets_an_answer_through_is_named_and_the_next_run_makes_good(
    line, undisturbed, monkeypatch, service, fault
):
    monkeypatch.setattr("resources.http.MAX_TRIES", 2)
    proxy, path, setting = {
        "search": (line.search, SEARCH, " url "),
        "inventory": (line.inventory, LIST, " platform.url "),
    }[service]
    proxy.misbehave(fault, at=path, times=ALWAYS)
    ran = line.run()
    assert (ran.status, ran.report["writes"]) == (1, {}), ran.stderr
    assert f"The {service} service at {proxy.url}" in ran.report["error"]
    assert setting in ran.report["error"]
    assert line.stand.inventory.state.journal() == []

    proxy.behave()
    assert line.run().status == 0
    assert holds_what_an_undisturbed_run_gives(line.stand, undisturbed)


@pytest.mark.parametrize("service", ["search", "inventory"])
def test_a_service_that_is_not_running_is_named_and_the_next_run_makes_good(line, undisturbed, service):
    proxy = {"search": line.search, "inventory": line.inventory}[service]
    with proxy.refusing():
        ran = line.run()
    setting = {"search": " url ", "inventory": " platform.url "}[service]
    assert (ran.status, ran.report["writes"]) == (1, {}), ran.stderr
    assert f"The {service} service at {proxy.url} did not answer" in ran.report["error"]
    assert "refused" in ran.report["error"]
    assert f"check{setting}and the network" in ran.report["error"]

    assert line.run().status == 0
    assert holds_what_an_undisturbed_run_gives(line.stand, undisturbed)


@pytest.mark.parametrize("fault", LOST, indirect=True)
def test_a_write_whose_answer_is_lost_is_confirmed_by_reading_and_not_sent_again(line, undisturbed, fault):
    line.inventory.misbehave(fault, at=UPDATE)
    ran = line.run()
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2}), ran.stderr
    assert line.inventory.requests["/api/v1/assets/update"] == 2
    assert holds_what_an_undisturbed_run_gives(line.stand, undisturbed)
    said = line.stand.tables.run_writes(ran.report["run_id"])["message"].drop_nulls()
    assert len(said) == 1
    assert said[0].startswith("confirmed by reading back; the answer was lost: The inventory service at ")


def test_a_write_that_never_arrived_is_one_failed_row_and_left_for_the_next_run(line, undisturbed):
    line.inventory.misbehave(tcp_proxy.reset_before, at=UPDATE)
    ran = line.run(writes={"concurrency": 1})
    assert (ran.status, ran.report["writes"]) == (0, {"failed": 1, "written": 1})
    assert "warning: 1 writes failed" in ran.stderr
    assert line.inventory.requests["/api/v1/assets/update"] == 2, "not sent again"

    ran = line.run()
    assert (ran.status, ran.report["writes"]) == (0, {"written": 1})
    assert holds_what_an_undisturbed_run_gives(line.stand, undisturbed)


@pytest.mark.parametrize("applied", [True, False])
def test_a_write_that_nobody_knows_about_is_settled_by_the_next_run(line, undisturbed, applied):
    away = ExitStack()

    def leave(exchange):
        if applied:
            exchange.forward()
        away.enter_context(line.inventory.refusing())

    line.inventory.misbehave(leave, at=UPDATE)
    with away:
        ran = line.run(writes={"concurrency": 1})
    assert (ran.status, ran.report["writes"]) == (0, {"failed": 1, "intended": 1})
    assert "warning: 1 writes have no known outcome" in ran.stderr

    ran = line.run()
    assert (ran.status, ran.report["writes"]) == (0, {"written": 1 if applied else 2})
    assert "warning: 1 writes of a run that was cut off are settled" in ran.stderr
    assert holds_what_an_undisturbed_run_gives(line.stand, undisturbed)


@pytest.mark.parametrize("place", [SEARCH, LIST, READ, UPDATE])
def test_a_service_that_is_away_for_a_moment_is_waited_for(line, undisturbed, monkeypatch, place):
    away, gone = ExitStack(), Event()
    proxy = line.search if place == SEARCH else line.inventory

    def leave(exchange):
        exchange.forward()
        away.enter_context(proxy.refusing())
        gone.set()

    def wait(_):
        assert gone.wait(10)
        away.close()

    for client in (SearchClient, InventoryClient):
        monkeypatch.setattr(f"assets_defs.scan.{client.__name__}", partial(client, sleep=wait))
    proxy.misbehave(leave, at=place)
    ran = line.run(writes={"concurrency": 1})
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2}), ran.stderr
    assert holds_what_an_undisturbed_run_gives(line.stand, undisturbed)


def test_an_engine_that_is_restarted_during_the_run_is_waited_for(line, undisturbed, monkeypatch):
    engine = line.stand.engine
    counting, stopped, waiting, back = (Event() for _ in range(4))

    def stop_the_engine(exchange):
        counting.set()
        assert stopped.wait(60)
        exchange.forward()

    def wait(_):
        waiting.set()
        assert back.wait(60)

    monkeypatch.setattr("assets_defs.scan.SearchClient", partial(SearchClient, sleep=wait))
    line.search.misbehave(tcp_proxy.none, at=SEARCH)  # the survey of days with events
    line.search.misbehave(stop_the_engine, at=SEARCH)
    with ThreadPoolExecutor(1) as pool, ExitStack() as whatever_happens:
        running = pool.submit(line.run)
        whatever_happens.callback(stopped.set)
        whatever_happens.callback(back.set)
        assert counting.wait(60)
        engine.__exit__(None, None, None)
        stopped.set()
        assert waiting.wait(60)
        engine._port = int(engine.url.rpartition(":")[2])
        engine.__enter__()  # in this thread, because an engine ends with the thread that started it
        back.set()
        ran = running.result()
    assert (ran.status, ran.report["writes"]) == (0, {"written": 2}), ran.stderr
    assert holds_what_an_undisturbed_run_gives(line.stand, undisturbed)
