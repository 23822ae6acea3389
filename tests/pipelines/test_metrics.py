import os
import threading
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from prometheus_client import CollectorRegistry

from assets_defs.record import RunRecord
from ownership.declaration import polars_schema
from ownership.tables import Runs
from pipelines.cli.metrics import Metrics, due_at
from resources.settings import load_instance
from resources.store.retention import KEEP, read_run_state, run_state
from resources.store.tables import Tables
from tests.assets_defs.scans import LOG
from tests.ownership.builders import NOW
from tests.resources import samples


def row(hour, kind="run", status="succeeded", **known):
    """The row of a run that began so many hours after `NOW` and took a quarter of one."""
    began = NOW + timedelta(hours=hour)
    times = {"started_at": began, "ended_at": began + timedelta(minutes=15)}
    blank = dict.fromkeys(polars_schema(Runs).names()) | {"options": "{}", "by": "somebody"}
    return {**blank, "run_id": f"run-{hour}", "kind": kind, "status": status, **times, **known}


def at(hour):
    return (NOW + timedelta(hours=hour)).timestamp()


def state_of(*rows):
    return run_state(pl.LazyFrame(rows, schema=polars_schema(Runs)))


def store(tables, row):
    tables.append("runs", pl.DataFrame([row], schema=polars_schema(Runs)), run_id=row["run_id"])


@pytest.mark.parametrize(
    ("rows", "known"),
    [
        ([row(0, hosts=3)], {"succeeded": {"run": at(0.25)}, "failing_since": None}),
        ([row(0), row(1, status="failed"), row(2, status="failed")], {"failing_since": at(1.25)}),
        ([row(0, status="failed"), row(1, status="failed"), row(2)], {"failing_since": None}),
        ([row(0), row(1, "dry_run"), row(2, "dry_run")], {"plans_only_since": at(1)}),
        (
            [row(1, "dry_run"), row(2, status="failed")],
            {"plans_only_since": at(1), "failing_since": at(2.25)},
        ),
        ([row(1, "dry_run"), row(2)], {"plans_only_since": None}),
        ([row(0, status="failed"), row(1, "undo")], {"failing_since": at(0.25)}),
        (
            [row(0), row(1, status="failed"), row(2, "dry_run")],
            {"failing_since": at(1.25), "last_run_success": at(0.25)},
        ),
        (
            [row(0, "dry_run"), row(1, "dry_run", "failed")],
            {"failing_since": at(1.25), "last_run_success": at(0.25)},
        ),
        ([row(2), row(0, status="failed")], {"failing_since": None}),  # one that was cut off, counted again
        ([row(0, ended_at=None, status="started")], {"last_run": None}),
    ],
)
def test_what_the_last_runs_came_to(rows, known):
    state = state_of(*rows)
    assert {name: state[name] for name in known} == known


def test_where_runs_only_plan_a_dry_run_is_one():
    rows = pl.LazyFrame([row(0, status="failed"), row(1, "dry_run", hosts=3)], schema=polars_schema(Runs))
    state = run_state(rows, dry_run=True)
    assert (state["failing_since"], state["last_run_success"], state["last_run"]["hosts"]) == (
        None,
        at(1.25),
        3,
    )


@pytest.mark.usefixtures("no_catalogue")
def test_a_run_stores_how_it_ended_beside_the_tables(tmp_path):
    tables = Tables(tmp_path, "corp", name="Corp")
    tables.prepare()
    store(tables, row(0))
    record = RunRecord(tables, "run-1", None, LOG, settings={"history_days": 9})
    record.begin("run")
    record.fail("the service is away")
    state = read_run_state(tables)
    assert (state["succeeded"], state["last_run"]["succeeded"]) == ({"run": at(0.25)}, False)
    with tables.ledger() as ledger:
        assert ledger.setting(KEEP) == {"history_days": 9}
    store(tables, row(999_999))
    assert read_run_state(tables) == state, "the clock was ahead; an alarm is raised as if it had not run"


@pytest.fixture
def folder(instance_file, tmp_path, monkeypatch):
    """The instances folder, with the file of one instance that nobody has run."""
    folder = tmp_path / "instances"
    folder.mkdir()
    instance_file.rename(folder / "head-office.yaml")
    monkeypatch.setenv("ASSET_OWNERS_INSTANCES", str(folder))
    return folder


def test_the_number_of_instance_files_is_told_the_broken_ones_too(call, folder):
    (folder / "broken.yaml").write_text("name: [")
    status, printed, _ = call("metrics")
    assert status == 0
    assert "\nasset_owners_instances 2.0\n" in printed
    assert 'asset_owners_instance_readable{slug="broken"} 0.0' in printed
    assert 'asset_owners_instance_readable{slug="head_office"} 1.0' in printed


@pytest.fixture
def registry(folder):  # noqa: ARG001  (of which it tells)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Metrics(None))
    return registry


def test_a_file_as_kubernetes_mounts_it_is_found_once_and_its_changes_are_seen(folder, registry):
    """The file is a link through a folder that is a link; an update replaces that one."""
    texts = [(folder / "head-office.yaml").read_text(), "name: ["]
    for number, text in enumerate(texts):
        (folder / f"..2026_{number}").mkdir()
        (folder / f"..2026_{number}" / "head-office.yaml").write_text(text)
    (folder / "head-office.yaml").unlink()
    (folder / "head-office.yaml").symlink_to("..data/head-office.yaml")
    for number in (0, 1):
        (folder / "..new").symlink_to(f"..2026_{number}")
        (folder / "..new").rename(folder / "..data")
        assert registry.get_sample_value("asset_owners_instances") == 1
        found = registry.get_sample_value("asset_owners_instance_readable", {"slug": "head_office"})
        assert found == (number == 0)
    folder.rename(folder.with_name("elsewhere"))
    assert registry.get_sample_value("asset_owners_instances") == 0


def test_an_instance_that_cannot_be_read_in_time_is_named_and_the_others_are_shown(
    folder, registry, monkeypatch
):
    text = (folder / "head-office.yaml").read_text().replace("Head office", "Branch")
    (folder / "branch.yaml").write_text(text)
    answers, asked = threading.Event(), []

    def read(tables, **_):
        asked.append(tables.slug)
        if tables.slug == "branch":
            answers.wait(60)
        return state_of(row(0, hosts=3))

    monkeypatch.setattr("pipelines.cli.metrics.SECONDS_TO_READ", 0.2)
    monkeypatch.setattr("pipelines.cli.metrics.read_run_state", read)

    def value(name, slug):
        return registry.get_sample_value(f"asset_owners_{name}", {"slug": slug})

    assert [value("instance_readable", slug) for slug in ("branch", "head_office")] == [0, 1]
    assert [value("last_run_hosts", slug) for slug in ("branch", "head_office")] == [None, 3]
    assert asked.count("branch") == 1, "it is asked again only once it has answered"
    answers.set()
    monkeypatch.setattr("pipelines.cli.metrics.SECONDS_TO_READ", 60)
    assert value("instance_readable", "branch") == 1


@pytest.mark.parametrize(
    "damaged",
    [
        {"succeeded": {"run": 1.0}, "last_run": {"succeeded": True}},
        {
            "succeeded": {},
            "last_run": {"started_at": 1, "succeeded": "x", "ended_at": 2, "seconds_by_step": {}},
        },
        {"succeeded": {}, "last_run": None, "failing_since": [1]},
        {"succeeded": {"run": None}},
    ],
)
def test_what_cannot_be_computed_of_an_instance_costs_the_others_nothing(call, folder, monkeypatch, damaged):
    text = (folder / "head-office.yaml").read_text().replace("Head office", "Branch")
    (folder / "branch.yaml").write_text(text)
    states = {"branch": damaged, "head_office": state_of(row(0, hosts=3))}
    monkeypatch.setattr("pipelines.cli.metrics.read_run_state", lambda tables, **_: states[tables.slug])
    status, printed, said = call("metrics")
    assert status == 0
    assert 'asset_owners_instance_readable{slug="branch"} 0.0' in printed
    assert 'asset_owners_last_run_hosts{slug="head_office"} 3.0' in printed
    assert "Traceback" in said


@pytest.mark.parametrize(
    ("schedule", "due"),
    [
        ("0 5 * * *", "2026-03-04 05:00"),
        ("30 5 * * *", "2026-03-03 05:30"),  # less than two hours ago
        ("0 5 * * 1", "2026-03-02 05:00"),
        (None, None),
    ],
)
def test_a_run_is_due_by_the_schedule_of_its_own_instance(schedule, due):
    instance = samples.instance(scan={"schedule": schedule, "timezone": "Etc/UTC"})
    found = due_at(instance, datetime(2026, 3, 4, 7, 15, tzinfo=UTC), has_run=True)
    assert (due and datetime.fromisoformat(due).replace(tzinfo=UTC).timestamp()) == found


def test_nothing_is_due_before_the_file_was_written(folder):
    file = folder / "head-office.yaml"
    os.utime(file, (at(0), at(0)))
    instance = load_instance(file)
    found = [due_at(instance, NOW + timedelta(days=days), has_run=False) for days in (0, 2)]
    assert [due is not None and due > at(0) for due in found] == [False, True]


@pytest.mark.parametrize("wrong", ["nonsense", "127.0.0.1:65536", ":-1"])
@pytest.mark.usefixtures("folder")
def test_an_address_that_is_none_is_refused(call, wrong):
    status, _, said = call("metrics", "--listen", wrong)
    assert (status, said.startswith("asset-owners: --listen: ")) == (2, True)
