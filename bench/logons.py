"""Logon events of any number in the sandbox engine: small ones, which is in favour of reading them."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta

import polars as pl
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_fixed

from bench.evidence import draw, host_name, random_number, user_name
from sandbox.engine import Engine
from sandbox.engine_files import EngineError
from sandbox.logons import MAPPING

FIRST_DAY = date(2026, 1, 1)
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


def load(
    engine: Engine,
    index: str,
    *,
    events: int,
    hosts: int,
    users: int,
    days: Sequence[date],
    hours_of_last_day: int = 24,
) -> None:
    """Make the index anew with so many matching events, spread evenly over the days."""
    engine.request("DELETE", index, params={"ignore_unavailable": "true"})
    engine.request("PUT", index, json={**MAPPING, "settings": {"index": _SETTINGS}})
    hours = [24] * (len(days) - 1) + [hours_of_last_day]
    # The engine refuses what comes faster than it tidies up its gigabyte of memory.
    add = retry(retry=retry_if_exception_type(EngineError), wait=wait_fixed(1), stop=stop_after_attempt(60))(
        engine.add
    )
    with ThreadPoolExecutor(2) as pool:
        for day, length in zip(days, hours, strict=True):
            documents = _documents(day, length, round(events * length / sum(hours)), hosts, users)
            list(pool.map(lambda lines: add(index, lines), _bodies(documents)))
    engine.request("POST", f"{index}/_forcemerge", params={"max_num_segments": "1"}, timeout=600)
    engine.request("POST", f"{index}/_refresh")


def _documents(day: date, hours: int, matching: int, hosts: int, users: int) -> pl.Series:
    """The lines of a bulk request: an action and a document."""
    seed = day.toordinal()
    start = round(datetime.combine(day, datetime.min.time(), UTC).timestamp() * 1000)
    events = draw(seed, round(matching * (1 + OTHERS)), hosts, users).with_columns(
        at=start + random_number(seed, 5, 3_600_000 * hours),
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
    return events.sort("at").select(line).collect().to_series()


def _bodies(documents: pl.Series) -> Iterator[str]:
    for part in documents.to_frame().iter_slices(_BULK_DOCUMENTS):
        yield "".join(part.to_series())


def days_from(first: date, number: int) -> list[date]:
    """So many days, one after another."""
    return [first + timedelta(days=offset) for offset in range(number)]
