"""A run on another source of logons and another inventory: the two protocols name all that it needs."""

from datetime import timedelta

import pytest

from assets_defs.run import failure_message
from ownership import quality
from resources.errors import TransientError
from resources.store.tables import Tables
from resources.writeback.journals import open_journal
from tests.ownership.builders import host, hosts
from tests.pipelines.in_memory import LAST, Job, LogFile, Shelf
from tests.resources.samples import instance

pytestmark = pytest.mark.usefixtures("no_catalogue", "no_report")


def test_owners_come_from_another_source_and_go_into_another_inventory(tmp_path):
    yesterday = LAST - timedelta(days=1)
    logons = LogFile(*[(LAST, "pc-1", "ann")] * 2, (yesterday, "pc-1", "bob"), (LAST, "pc-2", "bob"))
    inventory = Shelf(hosts(host("h1", "pc-1"), host("h2", "pc-2", owners=("u1",))))
    job = Job(instance(scan={"lookback_days": 3, "timezone": "UTC"}), tmp_path, logons, inventory)
    assert job().success
    assert inventory.written == {"h1": {"owner": "u1"}}
    decisions = job.tables.read("owner_decisions").collect()
    assert dict(decisions.select("host_id", "action").iter_rows()) == {"h1": "write", "h2": "conflict"}
    write = job.tables.writes().collect().row(0, named=True)
    sent = {"owner": "u1", "department": None, "criticality": None}
    assert (write["outcome"], write["new_values"]) == ("written", sent)


def test_odd_assets_stop_nothing_and_nothing_is_written_to_them(tmp_path):
    unreadable = {"owner_ids": None, "problem": "its field asset_owner holds a dict"}
    inventory = Shelf(hosts(host("h1", "pc-1"), host("h2", "pc-2") | unreadable))
    job = Job(instance(), tmp_path, LogFile((LAST, "pc-1", "ann"), (LAST, "pc-2", "bob")), inventory)
    assert job().success
    assert inventory.written == {"h1": {"owner": "u1"}}
    decisions = job.tables.read("owner_decisions").collect()
    assert decisions.filter(host_id="h2").select("evidence", "action").row(0) == ("unreadable_asset", "none")


@pytest.mark.parametrize(("broken", "written"), [("forwarders", 0), ("missing_owners", 1)])
def test_an_error_in_a_check_is_told_with_what_was_written_and_only_the_blocking_one_stops_the_sink(
    tmp_path, monkeypatch, broken, written
):
    def fails(*_, **__):
        raise ZeroDivisionError(broken)

    monkeypatch.setattr(quality, broken, fails)
    inventory = Shelf(hosts(host("h1", "pc-1")))
    job = Job(instance(scan={"lookback_days": 3}), tmp_path, LogFile((LAST, "pc-1", "ann")), inventory)
    assert not job().success
    assert len(inventory.written) == written
    (row,) = job.tables.all_runs("runs").collect().to_dicts()
    counts = ("to_write", "written", "owned_after")
    assert (row["status"], *(row[count] for count in counts)) == ("failed", *[written] * 3)
    assert broken in row["message"]


@pytest.mark.parametrize("made", [Tables.claim, lambda tables: open_journal(tables).__enter__()])
def test_a_run_of_a_program_older_than_what_it_finds_asks_nobody(tmp_path, monkeypatch, newer_program, made):
    job = Job(instance(), tmp_path, LogFile(), Shelf(hosts()))
    job.tables.prepare()
    with newer_program():
        made(job.tables)
    for service in (LogFile, Shelf):
        for method in ("logons", "hosts", "users"):
            monkeypatch.setattr(service, method, pytest.fail, raising=False)
    result = job()
    assert not result.success
    told = [failure_message(one.step_failure_data.error) for one in result.get_step_failure_events()]
    assert "asset-owners 99.0 (format" in told[0]


@pytest.mark.parametrize("hanging", ["logons", "hosts", "users"])
def test_the_first_step_that_fails_ends_the_others(tmp_path, monkeypatch, hanging):
    asked = []

    def asks(name, answer):
        def call(*given, **named):
            asked.append(name)
            if name == hanging:
                raise TransientError(f"no answer for {name}")
            return answer(*given, **named)

        return call

    job = Job(instance(scan={"lookback_days": 3}), tmp_path, LogFile(), Shelf(hosts()))
    for service, name in ((job.logons, "logons"), (job.inventory, "hosts"), (job.inventory, "users")):
        monkeypatch.setattr(service, name, asks(name, getattr(service, name)))
    result = job()
    told = {failure_message(one.step_failure_data.error) for one in result.get_step_failure_events()}
    assert (told, asked[-1]) == ({f"no answer for {hanging}"}, hanging)
