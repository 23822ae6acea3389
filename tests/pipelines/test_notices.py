"""Who is told what by `notify`: of runs that ended, however they were started, and of one that is overdue."""

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import dagster as dg
import pytest

from assets_defs.run_request import INSTANCE_TAG
from pipelines import jobs
from resources.errors import ServiceError
from tests.ownership.builders import host
from tests.pipelines.in_memory import LAST, Job, LogFile, Shelf
from tests.resources import samples
from tests.resources.http_stub import Reply, Stub

pytestmark = [pytest.mark.jobs, pytest.mark.usefixtures("no_catalogue", "no_report")]

LINK = "https://dagster.corp.example"


@pytest.fixture
def chat(monkeypatch):
    """A chat that instances with `notify` tell; the UI's address is known."""
    monkeypatch.setenv("ASSET_OWNERS_UI_URL", f"{LINK}/")
    with Stub(lambda _: Reply(b"")) as served:
        monkeypatch.setenv("CHAT_URL", served.url.replace("http", "json"))
        yield served


def job(home, shelf=None, **settings):
    settings |= {"notify": [{"env": "CHAT_URL"}], "scan": {"lookback_days": 3}}
    instance = samples.instance(name="Head office", **settings)
    return Job(home, instance, inventory=shelf or Shelf())


def notices(chat):
    return [json.loads(request.body)["message"] for request in chat.requests]


def test_written_owners_and_new_conflicts_are_told_once_by_numbers_and_a_link(tmp_path, chat):
    scan = job(tmp_path, Shelf(host("h1", "pc-1"), host("h2", "pc-2", owners=("u2",))))
    scan.logons = LogFile((LAST, "pc-1", "ann"), (LAST, "pc-2", "ann"))
    first = scan()
    assert first.success
    (told,) = notices(chat)
    link, command = f"{LINK}/runs/{first.run_id}", "asset-owners report --instance head_office"
    assert told == f"run {first.run_id[:8]}: 1 written, 1 new conflict\n{link}\n{command}"
    assert scan().success
    assert len(chat.requests) == 1, "nothing new came of the second run"


class Refusing(Shelf):
    def users(self):
        raise ServiceError("users are not listed: 403; ask who manages roles. More is in the log of 10.0.0.1")


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_run_that_failed_is_told_once_with_the_first_sentence_of_the_reason(tmp_path, chat, dry_run):
    failed = job(tmp_path, Refusing(), writes={"dry_run": dry_run})()
    assert not failed.success
    link, command = f"{LINK}/runs/{failed.run_id}", "asset-owners runs --instance head_office"
    why = "users are not listed: 403; ask who manages roles."
    assert notices(chat) == [f"run {failed.run_id[:8]}: failed\n{why}\n{link}\n{command}"]


def test_a_plan_that_somebody_asked_for_is_told_nobody(tmp_path, chat):
    assert not job(tmp_path, Refusing())(options={"dry_run": True}).success
    assert job(tmp_path)(options={"dry_run": True}).success
    assert notices(chat) == []


def test_an_undo_is_told_with_the_command_where_no_address_is_known(tmp_path, chat, monkeypatch):
    monkeypatch.delenv("ASSET_OWNERS_UI_URL")
    scan = job(tmp_path)
    wrote = scan()
    undo = scan("head_office__undo", ops={"head_office__undo_run": {"config": {"run_id": wrote.run_id}}})
    assert undo.success
    assert notices(chat)[-1].startswith(f"undo {undo.run_id[:8]}: 1 undone\nasset-owners report --instance")


def test_a_notice_that_is_not_delivered_fails_no_run(tmp_path, chat, monkeypatch, capfd):
    chat.answer = lambda _: Reply(b"", 500)
    assert job(tmp_path)().success
    monkeypatch.delenv("CHAT_URL")
    assert job(tmp_path / "other")().success
    warned = [
        line
        for line in capfd.readouterr().err.splitlines()
        if "A notice was not delivered (notify.0)" in line
    ]
    assert len(warned) == 2
    assert "CHAT_URL is not set" in warned[1]


@pytest.fixture
def overdue(tmp_path, monkeypatch):
    """The sensor of an instance whose schedule has begun a run three hours ago, ticked as the daemon does."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    scan = job(tmp_path)
    schedule = SimpleNamespace(
        instigator_name="head_office",
        status=SimpleNamespace(value="RUNNING"),
        instigator_origin_id="origin",
        selector_id="selector",
    )
    tick = datetime.now(UTC) - timedelta(hours=3)
    monkeypatch.setattr(dg.DagsterInstance, "all_instigator_state", lambda _: [schedule])
    monkeypatch.setattr(
        dg.DagsterInstance, "get_ticks", lambda *_, **__: [SimpleNamespace(timestamp=tick.timestamp())]
    )
    (sensor,) = jobs.sensors(scan.instance)
    with dg.instance_for_test() as recorded:
        context = dg.build_sensor_context(instance=recorded)
        yield SimpleNamespace(scan=scan, schedule=schedule, recorded=recorded, tick=lambda: sensor(context))


def test_that_no_run_has_succeeded_since_the_last_tick_is_told_once(overdue, chat):
    for _ in range(2):
        overdue.tick()
    (told,) = notices(chat)
    assert told.startswith("No run has succeeded since the schedule's last tick, ")
    assert told.endswith(f"\n{LINK}")


def test_a_success_since_the_last_tick_and_a_schedule_that_is_off_are_told_nobody(overdue, chat):
    overdue.schedule.status.value = "STOPPED"
    overdue.tick()
    overdue.schedule.status.value = "RUNNING"
    assert overdue.scan(options={"dry_run": True}).success
    overdue.tick()
    assert notices(chat) == []


@pytest.mark.parametrize("is_retried", [False, True])
def test_a_failure_that_was_told_is_not_told_again_unless_another_try_waits(overdue, chat, is_retried):
    overdue.scan.inventory = Refusing()
    assert not overdue.scan().success
    if is_retried:
        overdue.recorded.add_run(dg.DagsterRun("job", tags={INSTANCE_TAG: "Head office"}))
    overdue.tick()
    assert len(notices(chat)) == (2 if is_retried else 1)


def test_an_instance_whose_last_run_failed_waits_for_all_others_at_the_next_tick(tmp_path, monkeypatch):
    """Its services may still be away, and the others would wait for it."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    scan = job(tmp_path)
    tick = dg.build_schedule_context(scheduled_execution_time=datetime.now(UTC))

    def priority():
        (request,) = jobs.schedules(scan.instance)[0].evaluate_tick(tick).run_requests or []
        return request.tags.get("dagster/priority", "0")

    assert priority() == "0"
    scan.inventory = Refusing()
    assert not scan().success
    assert priority() == "-1"
    scan.inventory = Shelf()
    assert scan().success
    assert priority() == "0"
    (tmp_path / "tables" / scan.instance.slug / ".instance").write_text('{"name": "Another", "target": null}')
    assert priority() == "0", "the run itself says what is wrong"


def test_only_what_is_told_and_scheduled_has_a_sensor():
    told = [{"env": "CHAT_URL"}]
    assert jobs.sensors(samples.instance()) == []
    assert jobs.sensors(samples.instance(notify=told, scan={"schedule": None})) == []
