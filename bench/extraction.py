"""Extraction: the days of a range from the search service to stored counts, against the bare requests."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import requests

from assets_defs.evidence import day_tables
from bench.logons import FIRST_DAY, days_from, load
from bench.results import Experiment, ratio
from bench.timing import Contender, alternate, function, instance_content, run_once
from resources.http import Answer, Session, Transport
from resources.search.logons import SearchClient
from resources.search.source import extraction_fingerprint
from resources.settings import Instance
from resources.store.tables import Tables
from sandbox.engine import Engine

INDEX = "logs-bench"
PASSWORD = "BENCH_SEARCH_PASSWORD"  # noqa: S105  (the name of a variable)
WARM_UPS = 3
"""Tries that are not timed: the engine compiles what it runs often, which the first tries would pay for."""


@dataclass(frozen=True)
class Size:
    """How much is extracted."""

    events: int
    hosts: int
    days: int = 30


def measure(engine: Engine, size: Size, repetitions: int) -> Experiment:
    """Extract a range of days, and send the bare requests for it."""
    load(engine, INDEX, events=size.events, hosts=size.hosts, users=size.hosts, days=_days(size.days))
    where = {"url": engine.url, "ca_file": str(engine.ca_file), "days": size.days}
    environment = {PASSWORD: engine.admin.password}

    def contender(name: str, loop: str, **arguments: Any) -> Contender:
        return function(name, f"{__name__}:{loop}", environment, **where, **arguments)

    contenders = [
        contender("logon_counts: fetched, checked, stored", "product"),
        contender("floor: the same requests, answers thrown away", "floor"),
    ]
    for _ in range(WARM_UPS):
        run_once(contenders[0])
    timings = alternate(contenders, repetitions, same="events")
    ours, bare = timings
    name = f"{size.events:,} events, {size.hosts:,} hosts"
    return Experiment(
        f"Extraction: {name}, {size.days} days",
        timings,
        [
            ratio(1, f"{name}: logon_counts over the bare floor", ours, bare, "≤", 1.4),
        ],
        [
            "The engine's request cache is off: it would answer the second try of the same request.",
        ],
    )


def product(url: str, ca_file: str, days: int) -> Callable[[], dict[str, Any]]:
    """What the asset logon_counts does, without Dagster."""
    instance = _instance(url, ca_file)

    def extract() -> dict[str, Any]:
        with TemporaryDirectory() as folder, SearchClient(instance) as search:
            tables = Tables(Path(folder), instance.slug)
            made = [
                day_tables(day, instance.index, extraction_fingerprint(instance))
                for day in search.logons(_days(days))
            ]
            tables.write_days(made)
            rows = sum(counts.height for _, counts in made)
            events = sum(row["counted"].item() for row, _ in made)
        return {"rows": rows, "events": events}

    return extract


def floor(url: str, ca_file: str, days: int, connections: int = 2) -> Callable[[], dict[str, Any]]:
    """The requests that the client sends for the days, recorded beforehand; one a connection at a time."""
    sent = []

    class Recorder(Transport):
        def send(self, session: Session, method: str, path: str, **arguments: Any) -> Answer:
            sent.append((path, arguments["params"], arguments["json"]))
            return super().send(session, method, path, **arguments)

    instance = _instance(url, ca_file)
    with patch("resources.search.asking.Transport", Recorder), SearchClient(instance) as search:
        assert [*search.logons(_days(days))]  # noqa: S101  (read for what it sends)
    of_days = [one for one in sent if "pairs" in one[2]["aggs"]]
    session = _session(ca_file)

    def fetch(path: str, params: dict[str, str], json: dict[str, Any]) -> int:
        return len(session.post(url + path, params=params, json=json, timeout=300).content)

    def extract() -> dict[str, Any]:
        with ThreadPoolExecutor(connections) as pool:
            return {"requests": len(of_days), "bytes": sum(pool.map(lambda one: fetch(*one), of_days))}

    return extract


def _instance(url: str, ca_file: str) -> Instance:
    return Instance.model_validate(instance_content(PASSWORD, {}, url=url, ca_file=ca_file, index=INDEX))


def _days(number: int) -> list[date]:
    return days_from(FIRST_DAY, number)


def _session(ca_file: str) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    session.verify = ca_file
    session.auth = ("admin", os.environ[PASSWORD])
    return session
