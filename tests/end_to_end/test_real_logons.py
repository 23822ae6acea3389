"""The job on real Windows events, against counts made straight from the file.

The file lies beside the project and holds events of six collections, some of them years apart. Each stretch
of days with events is one run, because a day without events costs Dagster as much as one with.
"""

import gzip
import json
from collections import Counter
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from ownership.declaration import polars_schema
from ownership.kinds import kinds
from ownership.rules import Rules
from ownership.tables import LogonCounts
from ownership.windows import Window
from tests.ownership import builders

DATA = Path(__file__).parents[3] / "shared" / "data"
LOGONS = DATA / "windows_logons_ecs.jsonl.gz"
DATA_SETS = (
    "otrf_security_datasets",
    "evtx_rs_samples",
    "splunk_attack_data",
    "velocidex_evtx_tests",
    "evtx_to_mitre_attack",
    "msticpy_testdata",
)
MAX_GAP_DAYS = 60
BUILT_IN = {"system", "local service", "network service", "anonymous logon", "iusr"}
LEADERS = {
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


@pytest.fixture(scope="module")
def inventory(documents):
    """A host asset for every machine of the events, and user assets for the people among their users."""
    machines = sorted({document["host"]["name"] for document in documents})
    hosts = [{"id": f"host-{name}", "search_agent_name": name.upper()} for name in machines]
    people = [
        {"id": f"person-{name}", "user_email": f"{name}@corp.example"} for name, _, _ in LEADERS.values()
    ]
    return hosts, people


def event_of(document):
    by_default = (
        document["event"]["code"] == "4624"
        and document["event"]["outcome"] == "success"
        and document.get("process", {}).get("name") == "svchost.exe"
    )
    user = document["user"]["name"].rsplit("\\", 1)[-1].split("@")[0]
    day = date.fromisoformat(document["@timestamp"][:10])
    return Event(day, document["host"]["name"].lower(), user.lower(), by_default)


def windows(events):
    """The stretches of days with events."""
    days = sorted({event.day for event in events})
    gaps = [(one, following) for one, following in pairwise(days) if (following - one).days > MAX_GAP_DAYS]
    firsts = [days[0], *(following for _, following in gaps)]
    lasts = [*(one for one, _ in gaps), days[-1]]
    return map(Window, firsts, lasts)


def expected(events):
    """Evidence, leader, its events and all events of each host, by plain counting."""
    counts: dict[str, Counter] = {}
    for event in events:
        counts.setdefault(event.host, Counter())[event.user] += 1
    for host, users in counts.items():
        leader, most = min(users.items(), key=lambda item: (-item[1], item[0]))
        leads = 100 * most > 60 * users.total()
        evidence = "single_user" if len(users) == 1 else "majority" if leads else "no_majority"
        yield host, (evidence, leader, most, users.total(), len(users))


@pytest.mark.usefixtures("unrecorded", "no_catalogue", "no_report")
@pytest.mark.parametrize("data_set", DATA_SETS)
def test_counts_and_owners_are_those_of_the_file(engine_stand, documents, inventory, data_set):
    engine_stand.begin(*inventory)
    chosen = [document for document in documents if document["labels"]["dataset"] == data_set]
    mapping = json.loads((DATA / "winlogbeat_mapping.json").read_text())
    index = f"logs-real-{data_set}"
    assert engine_stand.engine.load(index, mapping, chosen) == len(chosen)

    events = [event_of(document) for document in chosen]
    led = {}
    for window in windows(events):
        within = [event for event in events if event.by_default and window.first <= event.day <= window.last]
        scan = {"first_day": "2015-01-01", "lookback_days": window.days}
        settings = {"index": index, "hostname_field": "host.name", "scan": scan}
        ran = engine_stand.run(settings, "--dry-run", as_of=window.last.isoformat())
        assert ran.status == 0, ran.stderr
        decisions = engine_stand.tables.of_run("owner_decisions", ran.report["run_id"])
        columns = ("hostname", "evidence", "username", "events", "total_events", "user_count")
        told = decisions.filter(pl.col("evidence") != "no_logons").select(columns)
        assert {hostname: tuple(rest) for hostname, *rest in told.iter_rows()} == dict(expected(within))
        to_write = decisions.filter(action="write")
        led |= to_write.select("hostname", "resolved_owner", "events", "total_events").rows_by_key("hostname")
    machines = {event.host for event in events}
    leaders = {
        host: [(f"person-{name}", *logons)] for host, (name, *logons) in LEADERS.items() if host in machines
    }
    assert {host: led.get(host) for host in leaders} == leaders
    assert engine_stand.inventory.state.journal() == []


def test_domain_controllers_and_accounts_of_windows_are_known_as_such(documents):
    rows = Counter((event.day, event.host, event.user) for event in map(event_of, documents))
    logons = pl.DataFrame([(*row, number, None) for row, number in rows.items()],
                          schema=polars_schema(LogonCounts), orient="row")  # fmt: skip
    found = kinds(
        logons.lazy(), builders.hosts(), builders.users(), rules=Rules(), user_value_field="user_email"
    )
    by_name = dict(found.accounts.select("username", "kind").iter_rows())
    computers = {name for name in by_name if name.endswith("$") and name != "svc_adfs$"}
    assert {by_name[name] for name in computers} == {"computer"}
    prefixes = ("dwm-", "umfd-", "healthmailbox", "msol_")
    built_in = {name for name in by_name if name.startswith(prefixes) or name in BUILT_IN}
    assert {by_name[name] for name in built_in} == {"built_in"}
    controllers = found.hosts.filter(pl.col("hostname").str.contains(r"dc(\d*\.|-\d)"))
    assert controllers.height >= 9
    assert set(controllers["kind"]) == {"server"}
