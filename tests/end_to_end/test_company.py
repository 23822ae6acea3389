"""The main job on the demo company, whose every outcome is known."""

import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from ownership.coverage import funnel
from pipelines.dagster_home import dagster_instance
from sandbox.company import DEMO_RULES
from tests.end_to_end.stand import COMPANY_INDEX, TODAY, Ran, Stand

pytestmark = pytest.mark.slow

SETTINGS = {"index": COMPANY_INDEX, "rules": DEMO_RULES, "scan": {"lookback_days": 30}}


@dataclass
class Afterwards:
    """What a run left behind, in the inventory and in the tables."""

    stand: Stand
    ran: Ran
    hosts: list
    users: list
    written: dict
    decisions: pl.DataFrame
    days: pl.DataFrame
    log: str


def run(stand):
    ran = stand.run(SETTINGS)
    assert ran.status == 0, ran.stderr
    state, tables = stand.inventory.state, stand.tables
    with dagster_instance(stand.home) as recorded:
        log = "\n".join(entry.user_message for entry in recorded.all_logs(ran.report["run_id"]))
    return Afterwards(
        stand,
        ran,
        state.assets("host"),
        state.assets("user"),
        stand.written(),
        tables.of_run("owner_decisions", ran.report["run_id"]),
        pl.read_parquet(tables.folder / "logon_days" / "*.parquet").sort("day"),
        log,
    )


@pytest.fixture(scope="module")
def first(company, engine, open_stand, tmp_path_factory):
    """The first run, on an empty store."""
    with pytest.MonkeyPatch.context() as patch:
        stand = open_stand(tmp_path_factory.mktemp("company"), patch, engine)
        stand.begin(company.hosts, company.users)
        yield run(stand)


@pytest.fixture(scope="module")
def second(first):
    """A second run right after it."""
    return run(first.stand)


def owner_ids(host):
    owner = host.get("asset_owner")
    return [str(one) for one in (owner if isinstance(owner, list) else [owner]) if one]


def test_every_decision_is_the_truth(company, first):
    columns = ["host_id", "hostname", "evidence", "match", "action", "resolved_owner"]
    expected = pl.DataFrame([{name: getattr(row, name) for name in columns} for row in company.truth])
    by = ["host_id", "hostname"]
    assert first.decisions.select(columns).sort(by).rows() == expected.sort(by).rows()


def test_exactly_the_missing_owners_are_written_each_with_department_and_criticality(company, first):
    users = {user["id"]: user for user in company.users}
    expected = {}
    for row in company.truth:
        if row.action == "write":
            owner = users[row.resolved_owner]
            copied = {"department": owner.get("user_department"), "criticality": owner.get("criticality")}
            expected[row.host_id] = {
                "asset_owner": row.resolved_owner,
                **{name: value for name, value in copied.items() if value},
            }
    assert first.written == expected
    assert first.hosts == [{**host, **expected.get(host["id"], {})} for host in company.hosts]
    assert first.users == company.users
    lengths = Counter(map(len, expected.values()))
    assert set(lengths) == {1, 2, 3}, "owners with and without something to copy"


def test_the_report_counts_decisions_writes_and_conflicts(company, first):
    stories = Counter(f"{row.evidence}/{row.match or 'null'}/{row.action}" for row in company.truth)
    actions = Counter(row.action for row in company.truth)
    assert first.ran.report == {
        "run_id": first.ran.report["run_id"],
        "instance": "Small",
        "window": {
            "from": (TODAY - timedelta(days=29)).isoformat(),
            "to": TODAY.isoformat(),
            "days": 30,
        },
        "decisions": stories,
        "writes": {"written": actions["write"]},
        "conflicts": actions["conflict"],
        "dry_run": False,
    }


def test_each_conflict_is_logged_with_host_and_both_owners(company, first):
    hosts = {host["id"]: host for host in company.hosts}
    conflicts = [row for row in company.truth if row.action == "conflict"]
    lines = {
        f"Conflict: host {row.host_id} has owner {','.join(owner_ids(hosts[row.host_id]))}, "
        f"the evidence names {row.resolved_owner}"
        for row in conflicts
    }
    assert [line for line in lines if line not in first.log] == []
    told = re.findall(r"^\d\d:\d\d:\d\d warning: (Conflict: .*)", first.ran.stderr, re.MULTILINE)
    assert len(told) == min(10, len(lines))
    assert set(told) <= lines


def test_the_caption_of_the_picture_of_the_decisions_has_their_numbers(first):
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (caption,) = re.findall(r"!\[Page of owner_decisions: (.+?)\]", text)
    stages = dict(funnel(first.decisions).select("stage", "hosts").iter_rows())
    names = ("hosts known", "with logons", "one winner", "one user asset", "to write", "agrees", "conflict")
    assert [int(number) for number in re.findall(r"\d+", caption)] == [stages[name] for name in names]


def test_a_second_run_agrees_and_writes_nothing(company, first, second):
    assert second.written == first.written
    assert second.hosts == first.hosts
    assert second.ran.report["writes"] == {}
    turned = {"write": "agree"}
    expected = Counter((row.evidence, turned.get(row.action, row.action)) for row in company.truth)
    assert Counter(second.decisions.select("evidence", "action").iter_rows()) == expected


def test_a_second_run_fetches_only_days_that_may_still_change(first, second):
    assert second.days["day"].to_list() == [TODAY - timedelta(days=age) for age in range(29, -1, -1)]
    before, after = first.days["fetched_at"], second.days["fetched_at"]
    fetched_again = set(second.days.filter(after > before)["day"])
    settled_from = [
        datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=3) for day in first.days["day"]
    ]
    unsettled = {
        day
        for day, moment, settled in zip(first.days["day"], before, settled_from, strict=True)
        if moment < settled
    }
    assert fetched_again == unsettled
    assert 2 <= len(unsettled) <= 3
    assert second.days.drop("fetched_at").equals(first.days.drop("fetched_at"))
