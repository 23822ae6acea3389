"""Each check on tables that a run stored: what it says when the property is broken, and when it holds."""

import itertools
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace

import dagster as dg
import polars as pl
import pytest

from assets_defs import checks
from assets_defs.run import RANGE_END, RANGE_START
from assets_defs.tuning import DRIFT_CHECK
from ownership.tables import LogonCounts, LogonDays
from pipelines.cli.run import errors
from pipelines.definitions import build_definitions
from resources.errors import TransientError
from resources.search.source import extraction_fingerprint
from resources.store.tables import Tables
from sandbox.resolution import resolve
from sandbox.stored_run import store_run
from tests.ownership.builders import NOW, WINDOW, counts, decide, host, hosts, plan, table, user, users
from tests.resources.samples import instance as sample

pytestmark = pytest.mark.usefixtures("no_plots")
FIRST, LAST = date(2026, 3, 1), date(2026, 3, 10)
SETTLED = datetime(2026, 3, 20, tzinfo=UTC)
WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR
PEOPLE = users(
    user("u1", "alice@corp.example", user_department="Sales"),
    user("u2", "bob@corp.example", user_department="IT"),
)


class Senders:
    """Stands for the search service, which a check asks who sends for whom."""

    def __init__(self, *rows, matching=100, error=None):
        self.rows, self.matching, self.error = rows, matching, error

    def senders(self, day):
        if self.error:
            raise self.error
        assert day == LAST
        schema = {"document_hostname": pl.String, "events": pl.Int64, "host_names": pl.List(pl.String)}
        frame = pl.DataFrame(self.rows, schema=schema, orient="row")
        return self.matching, frame


class Stored:
    """The tables of an instance, whose window is the first ten days of March, and its checks."""

    def __init__(self, home, **settings):
        scan = {"lookback_days": 10, "first_day": "2026-01-01", **settings.pop("scan", {})}
        self.instance = sample(**settings, scan=scan)
        self.tables = Tables(home, self.instance.slug)
        self.tables.prepare()
        self.recorded = dg.DagsterInstance.ephemeral()
        self.search = Senders()

    def days(self, **changed):
        """Store the days of the window; `changed` names columns of single days, `d3={"counted": 0}`."""
        for number in range(10):
            day = FIRST + timedelta(days=number)
            row = {
                "day": day,
                "matching": 100,
                "counted": 100,
                "lacking_user": 0,
                "lacking_host": 0,
                "fetched_at": SETTLED,
                "settings_fingerprint": extraction_fingerprint(self.instance),
                **changed.get(f"d{day.day}", {}),
            }
            self.tables.write_days([(table(LogonDays, row), table(LogonCounts))])
        return self

    def logons(self, *logons, people=PEOPLE, assets=None, run_id="now"):
        """Store what follows from logons, as a run would, and publish it."""
        assets = hosts() if assets is None else assets
        resolved = resolve(
            counts(*logons),
            assets,
            people,
            rules=self.instance.rules.as_rules(),
            user_value_field=self.instance.platform_user_value_field,
            window=WINDOW,
            decided_at=NOW,
            run_id=run_id,
        )
        store_run(self.tables, resolved, run_id=run_id, decided_at=NOW, hosts=assets, users=people)
        return self

    def run(self, selection, *, last=LAST, **options):
        definitions = build_definitions(
            [self.instance],
            self.tables.home,
            resource_overrides={
                f"{self.instance.slug}__search": _found(self.search),
                f"{self.instance.slug}__inventory": _found(SimpleNamespace(takes=("owner",))),
            },
        )
        job = dg.define_asset_job("tried", selection=selection)
        return (
            dg.Definitions.merge(definitions, dg.Definitions(jobs=[job]))
            .resolve_job_def("tried")
            .execute_in_process(
                instance=self.recorded,
                tags={RANGE_START: FIRST.isoformat(), RANGE_END: last.isoformat()},
                run_config={"resources": {f"{self.instance.slug}__scan": {"config": options}}},
                raise_on_error=False,
            )
        )

    def look(self, look):
        """The verdict of one check, executed by itself."""
        (key,) = (
            spec.key
            for check in checks.asset_checks(self.instance)
            for spec in check.check_specs
            if spec.name == look.__name__
        )
        return self.verdict(self.run(dg.AssetSelection.checks(key)), look)

    @staticmethod
    def verdict(result, look):
        (found,) = (one for one in result.get_asset_check_evaluations() if one.check_name == look.__name__)
        return found


def _found(search):
    @dg.resource
    def resource():
        return lambda: search

    return resource


@pytest.fixture
def stored(tmp_path):
    homes = itertools.count()
    return lambda **settings: Stored(tmp_path / str(next(homes)), **settings)


def shown(verdict):
    """The examples, as (head, rows) of the Markdown table."""
    head, _, *rows = verdict.metadata["examples"].md_str.splitlines()
    return [head, *rows]


def count(verdict):
    return verdict.metadata["count"].value


@pytest.fixture
def well(stored):
    """Tables that no check finds fault with."""
    return stored().days().logons(("ws1", "alice", 9), assets=hosts(host("h1", "ws1")))


def test_tables_without_fault_pass_every_check(well):
    result = well.run(dg.AssetSelection.all_asset_checks())
    verdicts = {verdict.check_name: verdict.passed for verdict in result.get_asset_check_evaluations()}
    of_runs = {key.name for check in checks.asset_checks(well.instance) for key in check.check_keys}
    assert (len(of_runs), verdicts.keys() - of_runs) == (16, {DRIFT_CHECK})
    assert [name for name, passed in verdicts.items() if not passed] == []


def test_one_table_is_looked_at_without_the_others(well):
    users = dg.AssetKey([well.instance.slug, "inventory_users"])
    result = well.run(dg.AssetSelection.checks_for_assets(users))
    looked_at = {verdict.check_name for verdict in result.get_asset_check_evaluations()}
    assert looked_at == {"users_are_readable", "identities_are_unique", "users_have_a_department"}


def test_each_check_says_what_it_holds_and_only_one_blocks(well):
    specs = [spec for check in checks.asset_checks(well.instance) for spec in check.check_specs]
    assert all((spec.description or "").endswith(".") for spec in specs)
    assert [spec.name for spec in specs if spec.blocking] == ["hosts_send_their_own_events"]


def test_days_that_are_out_of_date(stored):
    old = {"settings_fingerprint": "other settings"}
    early = {"fetched_at": datetime(2026, 3, 6, tzinfo=UTC)}
    verdict = stored().days(d3=old, d5=early).look(checks.days_are_fresh)
    assert (verdict.passed, verdict.severity, count(verdict)) == (False, WARN, 2)
    assert "2 of 10 days" in verdict.description
    assert shown(verdict)[1:] == [
        "| 2026-03-03 | 2026-03-20 00:00:00+00:00 | fetched with other settings |",
        "| 2026-03-05 | 2026-03-06 00:00:00+00:00 | events may have come since |",
    ]


@pytest.mark.parametrize(("strict", "severity"), [(False, WARN), (True, ERROR)])
def test_days_without_events(stored, strict, severity):
    days = stored(scan={"require_complete_window": strict}).days(d3={"counted": 0}, d4={"counted": 9})
    verdict = days.look(checks.no_gaps)
    assert (verdict.passed, verdict.severity, count(verdict)) == (False, severity, 2)
    assert shown(verdict) == ["| day | events |", "| 2026-03-03 | 0 |", "| 2026-03-04 | 9 |"]


def test_documents_that_lack_a_field(stored):
    verdict = (
        stored()
        .days(d2={"lacking_host": 11}, d3={"lacking_user": 10})
        .look(checks.documents_carry_both_fields)
    )
    assert (verdict.passed, verdict.severity, count(verdict)) == (False, WARN, 1)
    assert "user.name or agent.name" in verdict.description
    assert verdict.metadata["lacking_user"].value == 10
    assert shown(verdict)[1:] == ["| 2026-03-02 | 100 | 0 | 11 |"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ignore_ssl": True}, "ignore_ssl: is on"),
        ({"url": "http://search.example:9200"}, "url: is not encrypted"),
    ],
)
def test_a_certificate_that_is_not_checked(stored, settings, words):
    search = stored(**settings)
    verdict = search.look(checks.search_certificate_is_verified)
    assert (verdict.passed, verdict.severity) == (False, WARN)
    assert verdict.description.startswith(words)
    assert search.look(checks.inventory_certificate_is_verified).passed
    platform = sample().platform.model_dump(include={"url", "email", "tenant_id"})
    inventory = stored(platform={**platform, "password": {"env": "X"}, **settings})
    verdict = inventory.look(checks.inventory_certificate_is_verified)
    assert (verdict.passed, verdict.severity) == (False, WARN)
    assert verdict.description.startswith(f"platform.{words}")
    assert inventory.look(checks.search_certificate_is_verified).passed


def test_several_host_assets_of_one_name(stored):
    assets = hosts(host("h1", "ws1"), host("h2", "WS1"), host("h3", "<b>|evil"), host("h4", "<b>|evil"))
    verdict = stored().logons(assets=assets).look(checks.host_names_are_unique)
    assert (verdict.passed, verdict.severity, count(verdict)) == (False, WARN, 2)
    assert "get the owner" not in verdict.description, "some of them may get none"
    assert shown(verdict)[1:] == [r"| `<b>\x7cevil` | `h3, h4` |", "| `ws1` | `h1, h2` |"]


def test_owners_who_were_deleted(stored):
    assets = hosts(host("h1", owners=("u9", "u1")), host("h2", owners=("u1",)), host("h3"))
    verdict = stored().logons(assets=assets).look(checks.owners_exist)
    assert (verdict.passed, verdict.severity, count(verdict)) == (False, WARN, 1)
    assert shown(verdict)[1:] == ["| `h1` | `u9` |"]


ODD = {"problem": "its field x holds a dict"}


def test_assets_that_cannot_be_read(stored):
    assets = hosts(host("h1", "secret-host") | ODD, host("h2", "ws2"))
    people = users(user("u1", "alice@corp.example"), user("u2") | ODD, user("u3") | ODD)
    tables = stored().logons(assets=assets, people=people)
    for look, broken, told, row in (
        (checks.hosts_are_readable, 1, "1 of 2 host assets cannot be read", "| `h1` |"),
        (checks.users_are_readable, 2, "2 of 3 user assets cannot be read", "| `u2` |"),
    ):
        verdict = tables.look(look)
        assert (verdict.passed, verdict.severity, count(verdict)) == (False, WARN, broken)
        assert verdict.description.startswith(told)
        assert shown(verdict)[1] == f"{row} `its field x holds a dict` |"


def test_a_window_without_any_event_is_told(stored):
    nothing = {"matching": 0, "counted": 0}
    verdict = stored().days(**{f"d{day}": nothing for day in range(1, 11)}).look(checks.no_gaps)
    assert (verdict.passed, verdict.severity) == (False, WARN)
    assert verdict.description.startswith("There are no logon events in the window")


def test_an_inventory_that_lists_nothing_is_told(stored):
    tables = stored().logons(assets=hosts(), people=users())
    for look, kind in ((checks.hosts_are_readable, "host"), (checks.users_are_readable, "user")):
        verdict = tables.look(look)
        assert (verdict.passed, verdict.severity) == (False, WARN)
        assert verdict.description.startswith(f"The inventory lists no {kind} asset; check platform.contract")


def test_a_service_on_this_machine_needs_no_certificate(stored):
    assert stored(url="http://127.0.0.1:9200").look(checks.search_certificate_is_verified).passed


def test_assets_that_can_be_read_pass(well):
    assert well.look(checks.hosts_are_readable).passed
    assert well.look(checks.users_are_readable).passed


def write(tables, *host_ids, run_id="earlier"):
    """Store that a run wrote, before the inventory was listed."""
    written = hosts(*(host(host_id, host_id) for host_id in host_ids))
    logons = counts(*((host_id, "alice", 1) for host_id in host_ids))
    at = pl.lit(NOW - timedelta(days=1), pl.Datetime("us", "UTC"))
    rows = plan(decide(logons, PEOPLE, written), PEOPLE, written).with_columns(
        run_id=pl.lit(run_id),
        outcome=pl.lit("written"),
        completed_at=at,
        target=pl.lit(tables.instance.target),
    )
    tables.tables.append("owner_writes", rows, run_id=run_id)


def test_owners_that_were_written_and_do_not_show(stored):
    assets = hosts(host("h1", "h1", owners=("u1",)), host("h2", "h2"), host("h3", "h3", owners=("u2",)))
    tables = stored().logons(assets=assets)
    assert tables.look(checks.written_owners_hold).passed
    write(tables, "h1", "h2", "h3", "h9")
    verdict = tables.look(checks.written_owners_hold)
    assert (verdict.passed, verdict.severity, count(verdict)) == (False, WARN, 2)
    assert (verdict.metadata["emptied"].value, verdict.metadata["replaced"].value) == (1, 1)
    assert "1 have none now and 1 have another" in verdict.description
    assert shown(verdict) == [
        "| host id | written owner | present owner | written at |",
        "| `h2` | `u1` |  | 2026-03-29 12:00:00+00:00 |",
        "| `h3` | `u1` | `u2` | 2026-03-29 12:00:00+00:00 |",
    ]


def test_user_assets_of_one_identity_and_without_department(stored):
    people = users(user("u1", sam="alice", user_department="IT"), user("u2", sam="ALICE"))
    tables = stored().logons(people=people)
    verdict = tables.look(checks.identities_are_unique)
    assert (verdict.passed, verdict.severity, count(verdict)) == (False, WARN, 1)
    assert shown(verdict)[1:] == ["| `directory_user_sam_account_name` | `alice` | `u1, u2` |"]
    verdict = tables.look(checks.users_have_a_department)
    assert (verdict.passed, verdict.severity, count(verdict)) == (False, WARN, 1)
    assert "1 of 2 user assets" in verdict.description
    assert shown(verdict)[1:] == ["| `u2` |"]


def test_one_name_of_several_domains_on_a_host(stored):
    verdict = (
        stored()
        .logons(("ws1", r"CORP\alice", 1), ("ws1", r"LAB\alice", 1))
        .look(checks.users_are_of_one_domain)
    )
    assert (verdict.passed, verdict.severity, count(verdict)) == (False, WARN, 1)
    assert shown(verdict)[1:] == ["| `ws1` | `alice` | `corp, lab` |"]


@pytest.mark.parametrize(("of_others", "passed"), [(10, True), (11, False)])
def test_evidence_that_leads_to_no_user_asset(stored, of_others, passed):
    verdict = (
        stored().logons(("ws1", "alice", 10), ("ws2", "zoe", of_others)).look(checks.most_evidence_is_matched)
    )
    assert (verdict.passed, verdict.severity, count(verdict)) == (passed, WARN, 1)
    assert ("platform_user_value_field" in verdict.description) != passed
    assert shown(verdict)[1:] == [f"| `zoe` | 1 | {of_others} | 0 |"]


def test_no_evidence_is_no_fault(stored):
    verdict = stored().look(checks.most_evidence_is_matched)
    assert verdict.passed
    assert verdict.metadata["matched_percent"].value == 100


def decide_again(tables, *names, last=LAST, **options):
    """Run owner_decisions with its checks, after alice logged on to the hosts named; others own them."""
    owned = hosts(*(host(f"h{n}", f"ws{n}", owners=("u9",)) for n in (1, 2, 3)))
    tables.logons(*((name, "alice", 1) for name in names), assets=owned)
    selection = dg.AssetSelection.assets([tables.instance.slug, "owner_decisions"])
    result = tables.run(selection, last=last, force=True, **options)
    return result.run_id, tables.verdict(result, checks.conflicts_do_not_grow)


def test_conflicts_are_compared_with_the_run_before(well):
    _, first = decide_again(well, "ws1")
    assert first.passed
    assert first.description == "1 conflicts, and no earlier run to compare with"
    run_id, other = decide_again(well, "ws2")
    assert other.passed
    _, more = decide_again(well, "ws1", "ws2")
    assert (more.passed, more.severity, count(more)) == (False, WARN, 2)
    assert more.description == f"2 conflicts, 1 in run {run_id}"
    assert shown(more)[1:] == ["| `ws1` | `h1` | `u9` | `u1` |"]
    _, fewer = decide_again(well)
    assert fewer.passed


def test_looked_at_again_a_run_is_compared_with_the_one_before_and_not_with_itself(well):
    earlier, _ = decide_again(well)
    decide_again(well, "ws1")
    verdict = well.look(checks.conflicts_do_not_grow)
    assert not verdict.passed
    assert verdict.description == f"1 conflicts, 0 in run {earlier}"


def test_a_look_at_the_past_is_no_measure_of_conflicts(well):
    decide_again(well, "ws1", "ws2")
    decide_again(well, last=date(2026, 3, 5))
    _, now = decide_again(well, "ws1", "ws2")
    assert now.passed
    assert count(now) == 2


def test_a_look_at_a_few_days_is_no_measure_of_conflicts(well):
    run_id, _ = decide_again(well, "ws1", "ws2")
    decide_again(well, lookback_days=2)
    _, now = decide_again(well, "ws1", "ws2")
    assert now.passed
    assert now.description == f"2 conflicts, 2 in run {run_id}"


@pytest.mark.parametrize(("events", "severity"), [(50, WARN), (51, ERROR)])
def test_a_collector_that_sends_for_others(well, events, severity):
    well.search = Senders(("ws1", 9, ["WS1", "ws1.corp.example"]), ("wec01", events, ["pc1", "pc2", "pc3"]))
    result = well.run(dg.AssetSelection.all_asset_checks())
    verdict = well.verdict(result, checks.hosts_send_their_own_events)
    assert (verdict.passed, verdict.severity, count(verdict)) == (False, severity, 1)
    assert "hostname_field" in verdict.description
    assert "wec01" not in verdict.description
    assert shown(verdict)[1:] == [f"| `wec01` | {events} | `pc1, pc2, pc3` |"]


@pytest.mark.parametrize(
    "settings", [{"hostname_field": "host.name"}, {"rules": {"exclude_hosts": ["wec*"]}}], ids=str
)
def test_a_collector_does_no_harm_where_hosts_are_named_or_it_is_excluded(stored, settings):
    tables = stored(**settings).days()
    tables.search = Senders(("wec01", 99, ["pc1", "pc2"]))
    assert tables.look(checks.hosts_send_their_own_events).passed


@pytest.mark.parametrize(("events", "planned"), [(50, 1), (51, 0)])
def test_nothing_is_planned_or_written_when_most_events_are_of_collectors(well, events, planned):
    well.logons(("ws1", "alice", 9), assets=hosts(host("h1", "ws1")))
    well.search = Senders(("wec01", events, ["pc1", "pc2"]))
    tables = ([well.instance.slug, name] for name in ("owner_decisions", "owner_writes"))
    result = well.run(dg.AssetSelection.assets(*tables), dry_run=True)
    assert result.success == bool(planned)
    assert any("set hostname_field to host.name" in error for error in errors(result)) != result.success
    assert well.tables.of_run("owner_decisions", result.run_id).height == 1
    assert well.tables.of_run("owner_writes", result.run_id).height == planned


def test_a_service_that_does_not_answer_a_check_stops_nothing(well):
    well.search = Senders(error=TransientError("The search service at https://search.example timed out"))
    verdict = well.look(checks.hosts_send_their_own_events)
    assert (verdict.passed, verdict.severity) == (False, WARN)
    assert "timed out" in verdict.description


def test_what_is_wrong_stands_in_the_log_without_names(stored):
    assets = hosts(host("h1", "secret-host"), host("h2", "secret-host"))
    tables = stored().days(d3={"counted": 0}).logons(("ws1", "secret-user", 1), assets=assets)
    result = tables.run(dg.AssetSelection.all_asset_checks())
    log = [entry.user_message for entry in tables.recorded.all_logs(result.run_id)]
    assert any("host_names_are_unique: 1 host names" in line for line in log)
    assert any("no_gaps: 1 of 10 days" in line for line in log)
    assert any("most_evidence_is_matched: 0%" in line for line in log)
    assert not any("secret" in line for line in log)


def test_drift_is_looked_at_in_a_home_in_which_tuning_never_ran(well):
    (well.tables.folder / "ownership_drift.parquet").unlink()
    looks = well.run(dg.AssetSelection.all_asset_checks()).get_asset_check_evaluations()
    (look,) = (look for look in looks if look.check_name == DRIFT_CHECK)
    assert (look.passed, look.description) == (True, "The evidence no longer supports 0 owners")
