"""Logon events of any number in the sandbox engine: as small as they can be, which is in favour of reading them."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import requests

from bench.evidence import draw, host_names, user_names
from sandbox.logons import MAPPING

FIRST_DAY = date(2026, 1, 1)
DAY_MS = 86_400_000
OTHERS = 0.5
"""Events that do not match the query, for each one that does."""

_BULK_DOCUMENTS = 20_000
_SETTINGS = {
    "number_of_shards": 2,
    "number_of_replicas": 0,
    "refresh_interval": "-1",
    "translog.durability": "async",
}


def load(
    url: str,
    ca_file: str,
    index: str,
    *,
    events: int,
    hosts: int,
    users: int,
    days: list[int],
    hours_of_last_day: int = 24,
) -> Callable[[], dict[str, Any]]:
    """Make the index anew with so many matching events, spread evenly.

    Args:
        url: of the engine; BENCH_ADMIN_PASSWORD is set.
        ca_file: its certificate authority.
        index: its name.
        events: matching events.
        hosts: hosts.
        users: users.
        days: days with events, counted from `FIRST_DAY`.
        hours_of_last_day: how far the last day has got.
    """
    session = requests.Session()
    session.auth = ("admin", os.environ["BENCH_ADMIN_PASSWORD"])
    session.verify = ca_file
    session.trust_env = False

    def send(method: str, path: str, **arguments: Any) -> None:
        answer = session.request(method, f"{url}/{index}{path}", timeout=600, **arguments)
        if not answer.ok or answer.json().get("errors"):
            raise RuntimeError(f"{path}: {answer.text[:1000]}")

    def bulk(body: bytes) -> None:
        send("POST", "/_bulk?filter_path=errors", data=body, headers={"Content-Type": "application/x-ndjson"})

    def timed() -> dict[str, Any]:
        requests.delete(f"{url}/{index}", auth=session.auth, verify=ca_file, timeout=60)
        send("PUT", "", json={**MAPPING, "settings": {"index": _SETTINGS}})
        hours = [24] * (len(days) - 1) + [hours_of_last_day]
        with ThreadPoolExecutor(2) as pool:
            for number, (day, length) in enumerate(zip(days, hours, strict=True)):
                part = round(events * length / sum(hours))
                documents = _documents(number, day, length, part, hosts, users)
                list(pool.map(bulk, _bodies(documents)))
        send("POST", "/_refresh")
        send("POST", "/_forcemerge?max_num_segments=1")
        return {"events": events}

    return timed


def _documents(seed: int, day: int, hours: int, matching: int, hosts: int, users: int) -> pl.Series:
    """The lines of a bulk request: an action and a document."""
    rng = np.random.default_rng(seed)
    number = round(matching * (1 + OTHERS))
    host, user, _ = draw(rng, number, hosts, users)
    start = datetime.combine(FIRST_DAY + timedelta(days=day), datetime.min.time(), UTC)
    frame = pl.DataFrame(
        {
            "at": np.sort(rng.integers(0, DAY_MS * hours // 24, number)) + round(start.timestamp() * 1000),
            "host": host_names(hosts).gather(host),
            "user": user_names(users).gather(user),
            "code": np.where(rng.random(number) * (1 + OTHERS) < 1, 4624, 4634),
            "record": np.arange(number) + seed * 1_000_000,
        }
    )
    return frame.select(
        pl.format(
            '{"index":{}}\n{"@timestamp":{},"agent":{"name":"{}"},"user":{"name":"{}"},"event":{"code":"{}",'
            '"outcome":"success"},"process":{"name":"svchost.exe"},"winlog":{"record_id":"{}"}}\n',
        )
    ).to_series()


def _bodies(documents: pl.Series) -> Iterator[bytes]:
    for part in documents.to_frame().iter_slices(_BULK_DOCUMENTS):
        yield "".join(part.to_series()).encode()
