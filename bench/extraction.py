"""Extraction: the days of a range from the search service to stored counts, against bare loops.

The bare loops send what they need with `requests` and do no more: no retries, no checks, nothing stored.
"""

import os
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pandera.backends.polars.builtin_checks  # noqa: F401  (else the first check would import it)
import requests

from assets_defs.evidence import arriving_together, day_tables
from bench.logons import FIRST_DAY, days_from, load
from bench.results import Experiment, ratio, seconds
from bench.timing import Contender, alternate, function, instance_of, run_once
from resources.http import Answer, Transport
from resources.search.client import SearchClient
from resources.search.source import extraction_fingerprint
from resources.settings.models import DEFAULT_QUERY
from resources.store.tables import Tables
from sandbox.engine import Engine

INDEX = "logs-bench"
PASSWORD = "BENCH_SEARCH_PASSWORD"  # noqa: S105  (the name of a variable)
HOST, USER = "agent.name", "user.name"
WARM_UPS = 3
"""Tries that are not timed: the engine compiles what it runs often, which the first tries would pay for."""
SPARSE_DAYS = 3000
SPARSE_DAYS_WITH_EVENTS = 40


@dataclass(frozen=True)
class Size:
    """How much is extracted, and the least factors over the composites of 1,000 and 500 and over reading."""

    events: int
    hosts: int
    days: int = 30
    over_composites: tuple[float, float] = (4, 7)
    over_reading: float | None = 15


def measure(engine: Engine, size: Size, repetitions: int) -> Experiment:
    """Extract a range of days in all ways."""
    load(engine, INDEX, events=size.events, hosts=size.hosts, users=size.hosts, days=_days(size.days))
    where = {"url": engine.url, "ca_file": str(engine.ca_file), "days": size.days}
    environment = {PASSWORD: engine.admin.password}

    def contender(name: str, loop: str, **arguments: Any) -> Contender:
        return function(name, f"{__name__}:{loop}", environment, **where, **arguments)

    contenders = [
        contender("logon_counts: fetched, checked, stored", "product"),
        contender("floor: the same requests, answers thrown away", "floor"),
        contender("one composite, 1,000 buckets a page", "composite", page=1000),
        contender("one composite, 500 buckets a page", "composite", page=500),
        contender("reading documents, 10,000 a page", "documents"),
    ]
    for _ in range(WARM_UPS):
        run_once(contenders[0])
    timings = alternate(contenders, repetitions, same="events")
    ours, bare, by_1000, by_500, reading = timings
    with a_core_each(engine):
        alone = [replace(one, name=f"{one.name}; the engine on another core") for one in contenders[:2]]
        ours_alone, bare_alone = alternate(alone, repetitions, same="events")
    name = f"{size.events:,} events, {size.hosts:,} hosts"
    over_floor = f"{name}: logon_counts over the bare floor"
    return Experiment(
        f"Extraction: {name}, {size.days} days",
        [*timings, ours_alone, bare_alone],
        [
            ratio(1, over_floor, ours, bare, "≤", 1.4),
            ratio(1, f"{over_floor}, engine and client on a core each", ours_alone, bare_alone, "≤", 1.1),
            ratio(1, f"{name}: composite of 1,000 over ours", by_1000, ours, "≥", size.over_composites[0]),
            ratio(1, f"{name}: composite of 500 over ours", by_500, ours, "≥", size.over_composites[1]),
            ratio(1, f"{name}: reading documents over ours", reading, ours, "≥", size.over_reading),
        ],
        [
            "The engine's request cache is off: it would answer the second try of the same request.",
            "On a core each, the client waits for the engine as for a cluster elsewhere.",
        ],
    )


@contextmanager
def a_core_each(engine: Engine) -> Generator[None]:
    """Keep the engine to one core, and this process with those it starts to another."""
    cores = os.sched_getaffinity(0)
    first, *_, last = sorted(cores)

    def keep_engine_to(chosen: set[int]) -> None:
        for thread in Path(f"/proc/{engine.process_id}/task").iterdir():
            with suppress(ProcessLookupError):  # ended meanwhile
                os.sched_setaffinity(int(thread.name), chosen)

    keep_engine_to({first})
    os.sched_setaffinity(0, {last})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        keep_engine_to(cores)


def measure_sparse(engine: Engine, repetitions: int) -> Experiment:
    """Read a long range of which few days hold events."""
    every = SPARSE_DAYS // SPARSE_DAYS_WITH_EVENTS
    days = _days(SPARSE_DAYS)[::every]
    load(engine, f"{INDEX}-sparse", events=100 * len(days), hosts=100, users=100, days=days)
    where = {
        "url": engine.url,
        "ca_file": str(engine.ca_file),
        "days": SPARSE_DAYS,
        "index": f"{INDEX}-sparse",
    }
    name = f"{SPARSE_DAYS:,} days, {len(days)} with events"
    (ours,) = alternate(
        [function(f"client: {name}", f"{__name__}:client", {PASSWORD: engine.admin.password}, **where)],
        repetitions,
    )
    return Experiment(f"Sparse range: {name}", [ours], [seconds(1, f"{name}, read by the client", ours, 5)])


def client(url: str, ca_file: str, days: int, index: str) -> Callable[[], dict[str, Any]]:
    """The client alone, nothing stored."""
    instance = instance_of(PASSWORD, {}, url=url, ca_file=ca_file, index=index)

    def read() -> dict[str, Any]:
        with SearchClient(instance) as search:
            found = [one for one in search.logons(_days(days)) if one.matching]
        return {"days": len(found), "events": sum(one.matching for one in found)}

    return read


def product(url: str, ca_file: str, days: int) -> Callable[[], dict[str, Any]]:
    """What the asset logon_counts does, without Dagster."""
    instance = instance_of(PASSWORD, {}, url=url, ca_file=ca_file, index=INDEX)

    def extract() -> dict[str, Any]:
        rows = events = 0
        with TemporaryDirectory() as folder, SearchClient(instance) as search:
            tables = Tables(Path(folder), instance.slug)
            for found in arriving_together(search.logons(_days(days))):
                made = [day_tables(day, extraction_fingerprint(instance)) for day in found]
                tables.write_days(made)
                rows += sum(counts.height for _, counts in made)
                events += sum(row["counted"].item() for row, _ in made)
        return {"rows": rows, "events": events}

    return extract


def floor(url: str, ca_file: str, days: int, connections: int = 2) -> Callable[[], dict[str, Any]]:
    """The requests that the client sends for the days, recorded beforehand; one a connection at a time."""
    sent = []

    class Recorder(Transport):
        def send(self, session: requests.Session, method: str, path: str, **arguments: Any) -> Answer:
            sent.append((path, arguments["params"], arguments["json"]))
            return super().send(session, method, path, **arguments)

    with patch("resources.search.client.Transport", Recorder):
        client(url, ca_file, days, INDEX)()
    of_days = [one for one in sent if "pairs" in one[2]["aggs"]]
    session = _session(ca_file)

    def fetch(path: str, params: dict[str, str], json: dict[str, Any]) -> int:
        return len(session.post(url + path, params=params, json=json, timeout=300).content)

    def extract() -> dict[str, Any]:
        with ThreadPoolExecutor(connections) as pool:
            return {"requests": len(of_days), "bytes": sum(pool.map(lambda one: fetch(*one), of_days))}

    return extract


def composite(url: str, ca_file: str, days: int, page: int) -> Callable[[], dict[str, Any]]:
    """One composite aggregation over the whole window, page after page."""
    session = _session(ca_file)
    window = _days(days)

    def extract() -> dict[str, Any]:
        counts: Counter[tuple[str, str]] = Counter()
        after = None
        while True:
            body = _body(window[0], window[-1]) | {"aggs": {"pairs": _pairs(page, after)}}
            answer = session.post(f"{url}/{INDEX}/_search", json=body, timeout=300).json()
            found = answer["aggregations"]["pairs"]
            for bucket in found["buckets"]:
                counts[bucket["key"]["hostname"], bucket["key"]["username"]] += bucket["doc_count"]
            after = found.get("after_key")
            if after is None:
                return {"pairs": len(counts), "events": counts.total()}

    return extract


def documents(url: str, ca_file: str, days: int) -> Callable[[], dict[str, Any]]:
    """Scroll through the documents, of which only the two fields are sent."""
    session = _session(ca_file)
    window = _days(days)

    def extract() -> dict[str, Any]:
        counts: Counter[tuple[str, str]] = Counter()
        page_of = {"size": 10_000, "track_total_hits": True, "_source": [HOST, USER], "sort": ["_doc"]}
        body = _body(window[0], window[-1]) | page_of
        page = session.post(f"{url}/{INDEX}/_search", params={"scroll": "1m"}, json=body, timeout=300).json()
        while hits := page["hits"]["hits"]:
            counts.update((hit["_source"]["agent"]["name"], hit["_source"]["user"]["name"]) for hit in hits)
            body = {"scroll": "1m", "scroll_id": page["_scroll_id"]}
            page = session.post(f"{url}/_search/scroll", json=body, timeout=300).json()
        return {"pairs": len(counts), "events": counts.total()}

    return extract


def _days(number: int) -> list[date]:
    return days_from(FIRST_DAY, number)


def _session(ca_file: str) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    session.verify = ca_file
    session.auth = ("admin", os.environ[PASSWORD])
    return session


def _body(first: date, last: date) -> dict[str, Any]:
    when = {"gte": first.isoformat(), "lt": (last + timedelta(days=1)).isoformat()}
    query = [{"range": {"@timestamp": when}}, {"query_string": {"query": DEFAULT_QUERY}}]
    return {"size": 0, "track_total_hits": False, "query": {"bool": {"filter": query}}}


def _pairs(size: int, after: dict[str, str] | None = None) -> dict[str, Any]:
    sources: Sequence[Any] = [
        {"hostname": {"terms": {"field": HOST}}},
        {"username": {"terms": {"field": USER}}},
    ]
    return {"composite": {"size": size, "sources": sources, **({"after": after} if after else {})}}
