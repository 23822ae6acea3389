"""`asset-owners tune`, on a stored run: strong evidence was right, half of the weak was not."""

import json
from datetime import timedelta

import dagster as dg
import polars as pl
import pytest

from ownership.evidence import window_before
from ownership.tables import LogonDays, OwnerWrites
from ownership.windows import days_of
from pipelines.definitions import build_definitions
from resources.settings import load_instance
from resources.store.tables import Tables
from sandbox.stored_run import store_run
from tests.ownership.builders import NOW, PEOPLE, RUN, WINDOW, counts, host, hosts, resolution, table

DAY = WINDOW.last - timedelta(days=10)
LOGONS = counts(
    *((f"s{n}", "ann", 5, DAY) for n in range(40)),
    *(row for n in range(30) for row in ((f"w{n}", "ann", 7, DAY), (f"w{n}", "bob", 3, DAY))),
).collect()


def assets(by_hand):
    """So many of the strong have the right owner; of the weak 20 have one, every other the right one."""
    return hosts(
        *(host(f"s{n}", f"s{n}", owners=("u1",) if n < by_hand else ()) for n in range(40)),
        *(
            host(f"w{n}", f"w{n}", owners=(("u1", "u2")[n % 2],) if by_hand and n < 20 else ())
            for n in range(30)
        ),
    )


@pytest.fixture
def home_with(tmp_path):
    """An instance whose last run saw these hosts."""

    def stored(listed, *, publish=True, logons=LOGONS, days=WINDOW.days):
        tables = Tables(tmp_path / "home", "head_office", name="Head office")
        tables.prepare()
        for day in days_of(window_before(WINDOW.last, days)):
            rows = logons.filter(day=day)
            number = rows["events"].sum()
            fetched = {
                "day": day,
                "matching": number,
                "counted": number,
                "lacking_user": 0,
                "lacking_host": 0,
            }
            row = table(LogonDays, fetched | {"fetched_at": NOW, "settings_fingerprint": "x"})
            tables.write_days([(row, rows)], run_id=None if publish else RUN)
        in_window = logons.filter(pl.col("day") >= WINDOW.first)
        made = resolution(in_window.lazy(), PEOPLE, listed)
        if publish:
            store_run(tables, made, run_id=RUN, decided_at=NOW, hosts=listed, users=PEOPLE)
        else:
            snapshots = {
                "inventory_hosts": listed,
                "inventory_users": PEOPLE,
                "owner_decisions": made.decisions,
            }
            for name, frame in snapshots.items():
                tables.write(name, frame, run_id=RUN, publish=False)
        return tables

    return stored


def test_it_says_how_many_owners_would_be_wrong_and_what_to_set(call, instance_file, home_with):
    home_with(assets(by_hand=36))
    status, told, _ = call("tune", "--instance", instance_file, "--target-precision", "0.9")
    assert status == 0
    assert "At more than 60% over 30 days, 14 owners would be written, about 5 of them wrong (" in told
    assert "Compared with owners set by hand: 82.1% of 56 hosts are right" in told
    assert "At more than 70% over 30 days, 4 owners would be written, about 0 of them wrong (" in told
    assert "Lines for the instance file:\n\nrules:\n  share_threshold_percent: 70\n" in told


def test_a_program_gets_one_object(call, instance_file, home_with):
    tables = home_with(assets(by_hand=36))
    status, told, _ = call("tune", "--instance", instance_file, "--json", "--target-precision", "0.9")
    found = json.loads(told.splitlines()[-1])
    assert (status, found["instance"], found["window"]["days"]) == (0, "Head office", 30)
    now, best = found["now"], found["best"]
    assert (now["threshold_percent"], now["to_write"], now["wrong"]["estimate"]) == (60, 14, 5)
    assert (best["threshold_percent"], best["to_write"], best["wrong"]["measure"]) == (70, 4, "people")
    tried = {
        name: best[name] for name in ("threshold_percent", "window_days", "min_events", "min_active_days")
    }
    assert tables.read("threshold_backtest").filter(**tried).collect()["to_write"].to_list() == [4]


def test_where_too_little_can_be_compared_nothing_is_claimed(call, instance_file, home_with):
    home_with(assets(by_hand=0))
    status, told, _ = call("tune", "--instance", instance_file)
    assert status == 0
    assert "70 owners would be written, and how many of them would be wrong cannot be said." in told
    assert "Fewer than 30 hosts could be compared" in told
    assert "No settings that were tried are right for 98% of the hosts" in told
    _, told, _ = call("tune", "--instance", instance_file, "--json")
    found = json.loads(told.splitlines()[-1])
    assert (found["now"]["wrong"], found["best"]) == (None, None)


def test_the_future_is_told_of_windows_as_long_as_they_say(call, instance_file, home_with):
    """Rules 9.2: three days are not settled yet, and seven days are held back before them."""
    settled = WINDOW.last - timedelta(days=3)
    first = settled - timedelta(days=7 + 90 - 1)
    logons = counts(*(("s0", "ann", 5, day) for day in (first, settled, WINDOW.last))).collect()
    tables = home_with(hosts(host("s0", "s0")), logons=logons, days=100)
    assert call("tune", "--instance", instance_file)[0] == 0
    rules = {"threshold_percent": 60, "min_events": 1, "min_active_days": 1}
    lines = tables.read("threshold_backtest").filter(**rules).collect()
    # Only the longest window begins with the day of the logons, the first that it may count.
    assert lines.select("window_days", "future_hosts").rows() == [(7, 0), (14, 0), (30, 0), (60, 0), (90, 1)]


def test_it_changes_no_decision_and_no_write(call, instance_file, home_with):
    tables = home_with(assets(by_hand=36))
    before = tables.read("owner_decisions").collect()
    call("tune", "--instance", instance_file)
    assert tables.read("owner_decisions").collect().equals(before)
    assert tables.writes().collect().is_empty()


def test_without_a_run_there_is_nothing_to_tell(call, instance_file):
    status, _, told = call("tune", "--instance", instance_file)
    assert (status, "has no tables yet" in told) == (1, True)


def test_before_any_run_may_write_it_tells_of_the_last_dry_run(call, instance_file, home_with):
    home_with(assets(by_hand=36), publish=False)
    status, told, aside = call("tune", "--instance", instance_file)
    assert status == 0
    assert "At more than 60% over 30 days, 14 owners would be written, about 5 of them wrong (" in told
    assert "No run of Head office has been allowed to write yet" in aside


def test_the_job_warns_when_the_evidence_supports_fewer_owners_than_before(
    instance_file, home_with, tmp_path
):
    home = tmp_path / "home"
    defined = build_definitions([load_instance(instance_file)], home=home)
    recorded = dg.DagsterInstance.ephemeral()

    def looked():
        job = defined.resolve_job_def("head_office__tuning")
        ran = job.execute_in_process(instance=recorded)
        (look,) = ran.get_asset_check_evaluations()
        return look.check_name, look.passed, look.description

    home_with(assets(by_hand=0))
    words = "The evidence no longer supports"
    assert looked() == ("drift_does_not_grow", True, f"{words} 0 owners")
    home_with(assets(by_hand=36))
    assert looked() == ("drift_does_not_grow", False, f"{words} 10 owners; 0 when tuning ran before")
    assert looked() == ("drift_does_not_grow", True, f"{words} 10 owners; 10 when tuning ran before")


def test_the_job_has_a_weekly_schedule_that_is_off(instance_file, tmp_path):
    defined = build_definitions([load_instance(instance_file)], home=tmp_path)
    schedule = defined.resolve_schedule_def("head_office__tuning")
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    assert (schedule.cron_schedule, schedule.job_name) == ("0 12 * * 0", "head_office__tuning")


def test_owners_that_another_instance_wrote_to_the_inventory_are_not_set_by_hand(
    call, instance_file, home_with, tmp_path
):
    listed = assets(by_hand=36)
    home_with(listed)
    instance = load_instance(instance_file)
    other = Tables(tmp_path / "home", "branch", name="Branch")
    other.prepare()
    owned = listed.filter(pl.col("owner_ids").list.len() > 0).head(36)
    values = {"department": None, "criticality": None}
    rows = table(
        OwnerWrites,
        *(
            {"run_id": RUN, "host_id": host_id, "hostname": host_id, "target": instance.target}
            | {"old_values": {"owner": None} | values, "new_values": {"owner": owners[0]} | values}
            | {"outcome": "written", "intended_at": NOW, "completed_at": NOW}
            for host_id, owners in owned.select("host_id", "owner_ids").iter_rows()
        ),
    )
    other.append("owner_writes", rows, run_id=RUN)
    status, told, _ = call("tune", "--instance", instance_file)
    assert status == 0
    assert "Fewer than 30 hosts could be compared, with owners set by hand (20)" in told
