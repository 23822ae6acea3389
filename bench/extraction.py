"""Extraction: the days of a range from the search service to stored counts, against the bare requests.

The events are small ones, which is in favour of reading them.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import polars as pl
import requests
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_fixed

from assets_defs.evidence import day_tables
from bench.evidence import WINDOW, draw, host_name, random_number, user_name
from bench.results import Experiment, compare
from bench.timing import function, instance_content, run_once
from ownership.windows import days_of
from resources.http import Answer, Session, Transport
from resources.search.logons import SearchClient
from resources.search.source import extraction_fingerprint
from resources.settings import Instance
from resources.store.tables import Tables
from sandbox.engine import Engine
from sandbox.engine_files import EngineError
from sandbox.logons import MAPPING

INDEX = "logs-bench"
PASSWORD = "BENCH_SEARCH_PASSWORD"  # noqa: S105  (the name of a variable)
WARM_UPS = 3
"""Tries that are not timed: the engine compiles what it runs often, which the first tries would pay for."""
CONNECTIONS = 2
OTHERS = 0.5
"""Events that do not match the query, for each one that does."""

_BULK_DOCUMENTS = 20_000
_SETTINGS = {
    "number_of_shards": 2,
    "number_of_replicas": 0,
    "refresh_interval": "-1",
    "translog.durability": "async",
    "requests.cache.enable": "false",  # it would answer the second try of the same request
}


def measure(engine: Engine, events: int, hosts: int, tries: int) -> Experiment:
    """Extract the days of a month, and send the bare requests for them."""
    _load(engine, events, hosts)
    names = {
        "product": "logon_counts: fetched, checked, stored",
        "floor": "floor: the same requests, answers thrown away",
    }
    secret, ca_file = {PASSWORD: engine.admin.password}, str(engine.ca_file)
    ours, bare = (
        function(name, f"{__name__}:{what}", secret, url=engine.url, ca_file=ca_file)
        for what, name in names.items()
    )
    for _ in range(WARM_UPS):
        run_once(ours)
    name = f"{events:,} events, {hosts:,} hosts"
    return compare(
        f"Extraction: {name}, {WINDOW.days} days",
        *(1, f"{name}: logon_counts over the bare floor", 1.4, ours, bare, tries),
        notes=["The engine's request cache is off: it would answer the second try of the same request."],
    )


def product(url: str, ca_file: str) -> Callable[[], dict[str, int]]:
    """What the asset logon_counts does, without Dagster."""
    instance = _instance(url, ca_file)

    def extract() -> dict[str, int]:
        with TemporaryDirectory() as folder, SearchClient(instance) as search:
            made = [
                day_tables(day, instance.index, extraction_fingerprint(instance))
                for day in search.logons(days_of(WINDOW))
            ]
            Tables(Path(folder), instance.slug).write_days(made)
        rows = sum(counts.height for _, counts in made)
        return {"rows": rows, "events": sum(row["counted"].item() for row, _ in made)}

    return extract


def floor(url: str, ca_file: str) -> Callable[[], dict[str, int]]:
    """The requests that the client sends for the days, recorded beforehand; one a connection at a time."""
    sent = []

    class Recorder(Transport):
        def send(self, session: Session, method: str, path: str, **arguments: Any) -> Answer:
            sent.append((path, arguments["params"], arguments["json"]))
            return super().send(session, method, path, **arguments)

    instance = _instance(url, ca_file)
    with patch("resources.search.asking.Transport", Recorder), SearchClient(instance) as search:
        assert [*search.logons(days_of(WINDOW))]  # noqa: S101  (read for what it sends)
    of_days = [one for one in sent if "pairs" in one[2]["aggs"]]
    session = requests.Session()
    session.trust_env, session.verify = False, ca_file
    session.auth = ("admin", os.environ[PASSWORD])

    def fetch(request: tuple[str, dict[str, str], dict[str, Any]]) -> int:
        path, params, json = request
        return len(session.post(url + path, params=params, json=json, timeout=300).content)

    def extract() -> dict[str, int]:
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            return {"requests": len(of_days), "bytes": sum(pool.map(fetch, of_days))}

    return extract


def _instance(url: str, ca_file: str) -> Instance:
    return Instance.model_validate(instance_content(PASSWORD, {}, url=url, ca_file=ca_file, index=INDEX))


def _load(engine: Engine, events: int, hosts: int) -> None:
    """Make the index anew with so many matching events, spread evenly over the days."""
    engine.request("DELETE", INDEX, params={"ignore_unavailable": "true"})
    engine.request("PUT", INDEX, json={**MAPPING, "settings": {"index": _SETTINGS}})
    # The engine refuses what comes faster than it tidies up its gigabyte of memory.
    add = retry(retry=retry_if_exception_type(EngineError), wait=wait_fixed(1), stop=stop_after_attempt(60))(
        engine.add
    )
    with ThreadPoolExecutor(2) as pool:
        for day in days_of(WINDOW):
            documents = _documents(day, round(events / WINDOW.days), hosts).iter_slices(_BULK_DOCUMENTS)
            list(pool.map(lambda part: add(INDEX, "".join(part.to_series())), documents))
    engine.request("POST", f"{INDEX}/_forcemerge", params={"max_num_segments": "1"}, timeout=600)
    engine.request("POST", f"{INDEX}/_refresh")


def _documents(day: date, matching: int, hosts: int) -> pl.DataFrame:
    """The lines of a bulk request: an action and a document."""
    seed = day.toordinal()
    start = round(datetime.combine(day, datetime.min.time(), UTC).timestamp() * 1000)
    events = draw(seed, round(matching * (1 + OTHERS)), hosts, hosts).with_columns(
        at=start + random_number(seed, 5, 24 * 3_600_000),
        code=pl.when(pl.col("row") < matching).then(4624).otherwise(4634),
    )
    line = pl.concat_str(
        pl.lit('{"index":{}}\n{"@timestamp":'),
        "at",
        pl.lit(',"agent":{"name":"'),
        host_name(pl.col("host")),
        pl.lit('"},"user":{"name":"'),
        user_name(pl.col("user")),
        pl.lit('"},"event":{"code":"'),
        "code",
        pl.lit('","outcome":"success"},"process":{"name":"svchost.exe"}}\n'),
    )
    return events.sort("at").select(line).collect()
