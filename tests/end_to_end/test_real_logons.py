"""Fetching and deciding on real Windows events, against counts made straight from their file."""

import gzip
import json
from collections import Counter
from datetime import date
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from assets_defs.evidence import day_tables
from resources.search.logons import SearchClient
from resources.settings import load_instance
from tests.ownership import builders

DATA = Path(__file__).parents[3] / "shared" / "data"
LOGONS = DATA / "windows_logons_ecs.jsonl.gz"
PRIMARY_USERS = {
    "workstation6.theshire.local": ("pgustavo", 4, 6),
    "testcomputer": ("user", 8, 10),
    "fs03.offsec.lan": ("hack1", 2, 3),
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not LOGONS.exists(), reason=f"the real events are not here: {LOGONS} does not exist"),
]


class Event(NamedTuple):
    """What the decision hangs on; names as they are compared."""

    day: date
    host: str
    user: str
    by_default: bool


@pytest.fixture(scope="module")
def documents():
    with gzip.open(LOGONS, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def event_of(document):
    by_default = (
        document["event"]["code"] == "4624"
        and document["event"]["outcome"] == "success"
        and document.get("process", {}).get("name") == "svchost.exe"
    )
    user = document["user"]["name"].rsplit("\\", 1)[-1].split("@")[0]
    day = date.fromisoformat(document["@timestamp"][:10])
    return Event(day, document["host"]["name"].lower(), user.lower(), by_default)


def expected(events):
    """Evidence, primary user, their events and all events of each host, by plain counting."""
    counts: dict[str, Counter] = {}
    for event in events:
        counts.setdefault(event.host, Counter())[event.user] += 1
    for host, users in counts.items():
        primary, most = min(users.items(), key=lambda item: (-item[1], item[0]))
        is_majority = 100 * most > 60 * users.total()
        evidence = "single_user" if len(users) == 1 else "majority" if is_majority else "no_majority"
        yield host, (evidence, primary, most, users.total(), len(users))


def test_counts_and_owners_are_those_of_the_file(engine_stand, documents):
    """The events lie years apart: only days with events are asked for."""
    mapping = json.loads((DATA / "winlogbeat_mapping.json").read_text())
    settings = {"index": "logs-real", "hostname_field": "host.name"}
    assert engine_stand.engine.load("logs-real", mapping, documents) == len(documents)
    events = [event_of(document) for document in documents]
    days = sorted({event.day for event in events})
    with SearchClient(load_instance(engine_stand.instance_file(settings))) as search:
        counts = pl.concat([day_tables(fetched, "logs", "")[1] for fetched in search.logons(days)])

    hosts = builders.hosts(*(builders.host(name, name.upper()) for name in {event.host for event in events}))
    people = [
        builders.user(f"person-{name}", f"{name}@corp.example") for name, _, _ in PRIMARY_USERS.values()
    ]
    decisions = builders.decide(counts.lazy(), builders.users(*people), hosts)
    columns = ("hostname", "evidence", "username", "events", "total_events", "user_count")
    decided = decisions.filter(pl.col("evidence") != "no_logons").select(columns)
    by_default = [event for event in events if event.by_default]
    assert {hostname: tuple(rest) for hostname, *rest in decided.iter_rows()} == dict(expected(by_default))
    to_write = decisions.filter(action="write")
    led = to_write.select("hostname", "resolved_owner", "events", "total_events").rows_by_key("hostname")
    assert {host: led[host] for host in PRIMARY_USERS} == {
        host: [(f"person-{name}", *logons)] for host, (name, *logons) in PRIMARY_USERS.items()
    }
