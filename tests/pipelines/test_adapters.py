"""A run on another source of logons and another inventory: the two protocols name all that it needs."""

from datetime import timedelta

import pytest

from ownership import quality
from pipelines.cli.run import errors
from resources.errors import TransientError
from tests.ownership.builders import host, hosts
from tests.pipelines.in_memory import LAST, Job, LogFile, Shelf

pytestmark = pytest.mark.usefixtures("no_catalogue", "no_report")


def test_owners_come_from_another_source_into_another_inventory_and_odd_assets_stop_nothing(tmp_path):
    yesterday = LAST - timedelta(days=1)
    used = [(LAST, "pc-1", "ann")] * 2 + [(LAST, pc, "bob") for pc in ("pc-2", "pc-3")]
    unreadable = {"owner_ids": None, "problem": "its field asset_owner holds a dict"}
    inventory = Shelf(
        hosts(host("h1", "pc-1"), host("h2", "pc-2", owners=("u1",)), host("h3", "pc-3") | unreadable)
    )
    job = Job(tmp_path, logons=LogFile(*used, (yesterday, "pc-1", "bob")), inventory=inventory)
    assert job(tags={"started": "by hand"}).success, "a run of all tables needs no day that it names"
    assert inventory.written == {"h1": {"owner": "u1"}}
    decisions = job.tables.read("owner_decisions").collect()
    found = decisions.select("host_id", "action", "evidence").sort("host_id").rows()
    assert [row[:2] for row in found] == [("h1", "write"), ("h2", "conflict"), ("h3", "none")]
    assert found[2][2] == "unreadable_asset"
    write = job.tables.writes().collect().row(0, named=True)
    sent = {"owner": "u1", "department": None, "criticality": None}
    assert (write["outcome"], write["new_values"]) == ("written", sent)


def test_an_error_in_a_check_is_told_with_what_was_written(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise ZeroDivisionError("wrong")

    monkeypatch.setattr(quality, "missing_owners", fails)
    job = Job(tmp_path)
    assert not job().success
    assert len(job.inventory.written) == 1
    (row,) = job.tables.all_runs("runs").collect().to_dicts()
    assert (row["status"], row["to_write"], row["written"], row["owned_after"]) == ("failed", 1, 1, 1)
    assert "wrong" in row["message"]


@pytest.mark.parametrize("hanging", ["logons", "users"])
def test_the_first_step_that_fails_ends_the_others(tmp_path, monkeypatch, hanging):
    asked = []

    def asks(name, answer):
        def call(*given, **named):
            asked.append(name)
            if name == hanging:
                raise TransientError(f"no answer for {name}")
            return answer(*given, **named)

        return call

    job = Job(tmp_path)
    for service, name in ((job.logons, "logons"), (job.inventory, "hosts"), (job.inventory, "users")):
        monkeypatch.setattr(service, name, asks(name, getattr(service, name)))
    assert set(errors(job())) == {f"no answer for {hanging}"}
    assert asked[-1] == hanging
