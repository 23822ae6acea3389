"""Each check on tables that a run stored: what it says when the property is broken, and when it holds."""

import itertools
import shutil
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
import polars as pl
import pytest

from assets_defs import checks
from assets_defs.run_request import Mode
from ownership.declaration import empty
from ownership.tables import AuditSample, LogonCounts, LogonDays, OwnerDecisions
from ownership.windows import Window, days_of
from reports.sheets import answered_wrong
from resources.errors import TransientError
from resources.findings import Finding
from resources.search.source import Logs, extraction_fingerprint, extraction_fingerprints
from resources.store.tables import Tables
from sandbox.stored_run import store_run
from tests.assets_defs.scans import scan
from tests.ownership.builders import NOW, counts, host, hosts, logon_day, resolution, table, user, users
from tests.pipelines.in_memory import LogFile
from tests.resources.samples import instance as sample
from tests.resources.writeback.world import plan, values

pytestmark = pytest.mark.usefixtures("no_catalogue")
DAYS = Window(date(2026, 3, 1), date(2026, 3, 5))
WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR
ODD = {"problem": "its field x holds a dict"}
PEOPLE = users(
    user("u1", "alice@corp.example", user_department="Sales"),
    user("u2", "bob@corp.example", user_department="IT"),
)


class Search(LogFile):
    """Stands for the search service, which checks ask who sends for whom and why something is missing."""

    user_setting, host_setting = "user_field", "hostname_field"

    def __init__(self, *rows, error=None, parts=()):
        super().__init__()
        self.rows, self.error, self.parts = rows, error, parts

    def top_senders(self, first, last):
        if self.error:
            raise self.error
        assert (first, last) == (DAYS.last, DAYS.last)
        schema = {"document_hostname": pl.String, "events": pl.Int64, "host_names": pl.List(pl.String)}
        return "host.name", pl.DataFrame(self.rows, schema=schema, orient="row")

    def why_nothing(self, first, last):
        return Finding("warning", "query", f"The clause matches 0 from {first} to {last}")

    def why_lacking(self, first, last, *, user):  # noqa: ARG002
        return "" if user else "it is missing in logs-2"

    def unmatched_parts(self):
        return list(self.parts)


class Stored:
    """The tables of an instance, whose window is the first days of March, and its checks."""

    def __init__(self, home, **settings):
        self.instance = sample(**settings)
        self.tables = Tables(home, self.instance.slug)
        self.search = Search()
        self.run_id = "this"

    def days(self, **changed):
        """Store the days of the window; `changed` names columns of single days, `d3={"counted": 0}`."""
        days = [logon_day(day, 100) | changed.get(f"d{day.day}", {}) for day in days_of(DAYS)]
        now = {"settings_fingerprint": extraction_fingerprint(self.instance), "log": "logs-*"}
        fetched = table(LogonDays, *(day | now for day in days)).iter_slices(1)
        self.tables.write_days([(day, empty(LogonCounts)) for day in fetched])
        return self

    def logons(self, *logons, people=PEOPLE, assets=None, hours=0):
        """Store what follows from logons, as a run would, and publish it."""
        assets = hosts() if assets is None else assets
        self.run_id = f"after-{hours}"
        run: Any = {"run_id": self.run_id, "decided_at": NOW + timedelta(hours=hours)}
        rules = self.instance.rules.as_rules()
        resolved = resolution(counts(*logons), people, assets, rules, window=DAYS, **run)
        store_run(self.tables, resolved, hosts=assets, users=people, **run)
        return self

    def run(self, **changed):
        return scan(self.tables, self.instance, DAYS, self.run_id, search=self.search, **changed)

    def evaluate(self, check, **changed) -> Any:
        """The verdict of one check."""
        return checks.evaluate(
            check, self.run(**changed), blocking=check is checks.hosts_send_their_own_events
        )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A home with the empty tables, to copy: to make it takes longer than most checks."""
    home = tmp_path_factory.mktemp("prepared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("resources.store.tables.refresh_catalogue", lambda *_, **__: None)
        Tables(home, sample().slug).prepare()
    return home


@pytest.fixture
def stored(tmp_path, prepared):
    homes = (shutil.copytree(prepared, tmp_path / str(number)) for number in itertools.count())
    return lambda **settings: Stored(next(homes), **settings)


@pytest.fixture
def well(stored):
    """Tables that no check finds fault with."""
    return stored().days().logons(("ws1", "alice", 9), assets=hosts(host("h1", "ws1")))


def shown(verdict):
    """The values of the examples, by row."""
    return [tuple(record.data.values()) for record in verdict.metadata["examples"].records]


def warns(verdict, *rows):
    assert (verdict.passed, verdict.severity) == (False, WARN)
    if rows:
        assert (verdict.metadata["count"].value, shown(verdict)) == (len(rows), list(rows))
    return True


SPECS = [spec for check in checks.asset_checks(sample()) for spec in check.check_specs]


def test_tables_without_fault_pass_every_check_of_which_one_blocks(well):
    assert [spec.name for spec in SPECS if spec.blocking] == ["hosts_send_their_own_events"]
    for spec in SPECS:
        assert (spec.description or "").endswith(".")
        assert well.evaluate(getattr(checks, spec.name)).passed, spec.name


@pytest.mark.parametrize(("strict", "severity"), [(False, WARN), (True, ERROR)])
def test_days_without_events(stored, strict, severity):
    days = stored(scan={"require_complete_window": strict}).days(d3={"counted": 0}, d4={"counted": 9})
    verdict = days.evaluate(checks.no_gaps)
    assert (verdict.passed, verdict.severity) == (False, severity)
    effect = "an error: nothing is written until it is fixed" if strict else "a warning: writing goes on"
    assert next(iter(verdict.metadata.items())) == ("effect", dg.MetadataValue.text(effect))
    assert shown(verdict) == [("2026-03-03", "logs-*", 0), ("2026-03-04", "logs-*", 9)]


@pytest.mark.parametrize(
    ("empty_days", "says"),
    [
        ((1, 2), "2 of 5 days are before the first logon events, on 2026-03-03: the index begins there"),
        ((4,), "1 of 5 days have no logon events, or hardly any (2026-03-04); fetch"),
        (
            (1, 4),
            "on 2026-03-02: the index begins there, unless earlier ones were lost. 1 of 5 days have no logon",
        ),
    ],
)
def test_days_before_the_first_events_may_be_no_loss(stored, empty_days, says):
    verdict = stored().days(**{f"d{day}": {"counted": 0} for day in empty_days}).evaluate(checks.no_gaps)
    assert says in verdict.description
    assert ("fetch" in verdict.description) == (4 in empty_days)


@pytest.mark.parametrize(
    ("lacking", "says"),
    [
        ({"matching": 0}, "The clause matches 0 from 2026-03-01"),
        ({"lacking_user": 100}, "no logon event of the window has both a user and a host name"),
    ],
)
def test_a_window_without_any_event_that_counts(stored, lacking, says):
    nothing = {f"d{day}": {"counted": 0} | lacking for day in range(1, 6)}
    verdict = stored().days(**nothing).evaluate(checks.no_gaps)
    assert warns(verdict)
    assert says in verdict.description


def test_a_part_of_the_index_pattern_that_matches_nothing(stored):
    tables = stored(index="logs-a*,logs-b*").days()
    assert tables.evaluate(checks.index_is_there).passed
    tables.search = Search(parts=["logs-b*"])
    assert warns(tables.evaluate(checks.index_is_there), ("logs-b*",))


def test_documents_that_lack_a_field(stored):
    nothing = {"matching": 0, "counted": 0}
    days = stored().days(
        d2={"lacking_host": 11}, d3={"lacking_user": 10}, d4={"lacking_user": 11}, d5=nothing
    )
    verdict = days.evaluate(checks.documents_carry_both_fields)
    assert warns(verdict, ("2026-03-02", 100, 0, 11), ("2026-03-04", 100, 11, 0))
    assert verdict.description.startswith("user_field: 21 of the 400 logon events from 2026-03-01")
    assert "hostname_field: 11 of the 400" in verdict.description
    assert "it is missing in logs-2" in verdict.description
    assert verdict.metadata["lacking_user"].value == 21


@pytest.mark.parametrize(
    ("settings", "setting"), [({"ignore_ssl": True}, "ignore_ssl"), ({"url": "http://x.example"}, "url")]
)
def test_a_certificate_that_is_not_checked(stored, settings, setting):
    search = stored(**settings)
    verdict = search.evaluate(checks.search_certificate_is_verified)
    assert warns(verdict)
    assert verdict.description.startswith(f"{setting}: ")
    assert search.evaluate(checks.inventory_certificate_is_verified).passed
    platform = sample().platform.model_dump(include={"url", "email", "tenant_id"})
    inventory = stored(platform={**platform, "password": {"env": "X"}, **settings})
    verdict = inventory.evaluate(checks.inventory_certificate_is_verified)
    assert warns(verdict)
    assert verdict.description.startswith(f"platform.{setting}: ")
    assert inventory.evaluate(checks.search_certificate_is_verified).passed


def test_faults_of_the_inventory(stored):
    assets = hosts(
        host("h1", "ws1", owners=("u9", "u1")),
        host("h2", "WS1", owners=("u1",)),
        host("h3", "<b>|evil"),
        host("h4", "<b>|evil"),
        host("h5", "secret-host") | ODD,
    )
    people = users(
        user("u1", sam="mw"),
        user("u2", email="mw@corp.example"),
        user("u3", sam="mw") | ODD,
        user("u4") | ODD,
    )
    excluding = {f"exclude_{kind}assets": {f"{kind}group": ["x"]} for kind in ("", "user_")}
    tables = stored(rules=excluding).logons(assets=assets, people=people)
    for check, *rows in (
        (checks.host_names_are_unique, ("<b>|evil", "h3, h4"), ("ws1", "h1, h2")),
        (checks.owners_exist, ("h1", "u9")),
        (checks.account_names_are_unambiguous, ("mw", "u1, u2")),
        (checks.hosts_are_readable, ("h5", ODD["problem"])),
        (checks.excluding_fields_are_listed, ("group",)),
        (checks.excluding_user_fields_are_listed, ("user_group",)),
        (checks.users_are_readable, *((one, ODD["problem"]) for one in ("u3", "u4"))),
    ):
        assert warns(tables.evaluate(check), *rows), check.__name__


def test_an_inventory_that_lists_nothing(stored):
    tables = stored().logons(people=users())
    for kind in ("hosts", "users"):
        verdict = tables.evaluate(getattr(checks, f"{kind}_are_readable"))
        assert warns(verdict)
        assert f"platform.contract.{kind}" in verdict.description


def test_owners_that_were_written_and_do_not_show(stored):
    assets = hosts(host("h1", "h1", owners=("u1",)), host("h2", "h2"), host("h3", "h3", owners=("u2",)))
    tables = stored().logons(assets=assets)
    assert tables.evaluate(checks.written_owners_hold).passed
    told = {"target": tables.instance.target, "completed_at": NOW - timedelta(days=1), "run_id": "earlier"}
    rows = plan("h1", "h2", "h3", "h9", new=values("u1"), outcome="written", **told)
    tables.tables.append("owner_writes", rows, run_id="earlier")
    verdict = tables.evaluate(checks.written_owners_hold)
    at = "2026-03-29 12:00:00+00:00"
    assert warns(verdict, ("h2", "u1", "", at), ("h3", "u1", "u2", at))
    assert (verdict.metadata["emptied"].value, verdict.metadata["replaced"].value) == (1, 1)


def test_owners_that_were_written_and_answered_no_are_named_with_the_command_that_undoes_them(stored):
    tables = stored().logons(assets=hosts(*(host(name, name) for name in ("h1", "@7", "h3", "h4"))))
    told = {"target": tables.instance.target, "outcome": "written", "completed_at": NOW + timedelta(hours=1)}
    for run_id, *written in (("earlier-run", "h1", "@7", "h4"), ("later-run", "h3")):
        tables.tables.append(
            "owner_writes", plan(*written, new=values("u1"), run_id=run_id, **told), run_id=run_id
        )
    told |= {"outcome": "undone", "undoes": "earlier-run", "completed_at": NOW + timedelta(hours=2)}
    tables.tables.append("owner_writes", plan("h4", new=values(""), run_id="undo", **told), run_id="undo")
    assert tables.evaluate(checks.written_owners_are_not_wrong).passed
    undone = plan("h1", "@7", "h4", new=values("u1"))
    no = answered_wrong(empty(AuditSample), undone, empty(OwnerDecisions), at=datetime.now(UTC), by="kim")
    tables.tables.write("audit_sample", no)
    verdict = tables.evaluate(checks.written_owners_are_not_wrong)
    assert verdict.description.startswith("2 of the owners written were answered no: @7, h1. Undo them:\n")
    assert verdict.description.endswith(" earlier- --host ' @7' --host h1 --wrong")
    assert shown(verdict) == [("earlier-run", "@7", "@7"), ("earlier-run", "h1", "h1")]


def test_one_name_of_several_domains_on_a_host_and_one_of_a_host_that_its_asset_has_in_another(stored):
    logons = ("ws1.corp", r"CORP\alice", 1), ("ws1.corp", r"LAB\alice", 1), ("ws2", "alice", 1)
    tables = stored().logons(*logons, assets=hosts(host("h1", "WS1.lab")))
    assert warns(tables.evaluate(checks.users_are_of_one_domain), ("ws1.corp", "alice", "corp, lab"))
    assert warns(tables.evaluate(checks.hosts_are_named_alike), ("ws1.corp", "ws1.lab"))


@pytest.mark.parametrize(("of_others", "passed"), [(10, True), (11, False)])
def test_evidence_that_leads_to_no_user_asset(stored, of_others, passed):
    verdict = (
        stored()
        .logons(("ws1", "alice", 10), ("ws2", "zoe", of_others))
        .evaluate(checks.most_evidence_is_matched)
    )
    assert verdict.passed == passed
    assert ("platform_user_value_field" in verdict.description) != passed
    assert shown(verdict) == [("zoe", 1, of_others, 0)]


def test_conflicts_that_were_not_there_before(well):
    owned = hosts(*(host(f"h{n}", f"ws{n}", owners=("u9",)) for n in (1, 2)))
    well.logons(("ws1", "alice", 1), assets=owned)
    first = well.evaluate(checks.conflicts_do_not_grow)
    assert (first.passed, first.metadata["conflicts"].value) == (True, 1), "there is nothing to compare with"
    assert first.description == "1 conflict (1 new); the first run is compared with no other one"
    assert first.metadata["count"].value == 1, "the number that the page of the decisions shows"
    well.logons(("ws1", "alice", 1), ("ws2", "alice", 1), assets=owned, hours=1)
    verdict = well.evaluate(checks.conflicts_do_not_grow)
    assert warns(verdict, ("ws2", "h2", "u9", "u1"))
    assert verdict.metadata["conflicts"].value == 2
    backfill = Mode("backfill", None, (), plans=True)
    assert well.evaluate(checks.conflicts_do_not_grow, mode=backfill).passed, "past days are not compared"
    well.logons(("ws1", "alice", 1), ("ws2", "alice", 1), assets=owned, hours=2)
    assert well.evaluate(checks.conflicts_do_not_grow).passed


@pytest.mark.parametrize(("events", "severity"), [(50, WARN), (51, ERROR)])
def test_a_collector_that_sends_for_others(stored, events, severity):
    tables = stored().days()
    tables.search = Search(("ws1", 9, ["WS1", "ws1.corp.example"]), ("wec01", events, ["pc1", "pc2", "pc3"]))
    run = tables.run()
    run.record.begin("run", checked_at=NOW)
    verdict: Any = checks.evaluate(checks.hosts_send_their_own_events, run, blocking=True)
    assert (verdict.passed, verdict.severity) == (False, severity)
    assert shown(verdict) == [("wec01", events, "pc1, pc2, pc3")]
    assert "hostname_field" in verdict.description
    assert "wec01" not in verdict.description, "descriptions stand in the log"
    blocked = severity is ERROR
    assert bool(run.record.row()["checked_at"]) != blocked
    assert run.record.row()["status"] == ("failed" if blocked else "started")


@pytest.mark.parametrize(("few", "severity"), [(60, WARN), (601, ERROR)])
def test_a_collector_of_one_of_several_logs_is_named_and_compared_with_all_events(stored, few, severity):
    logs = [{"index": "few-*"}, {"index": "most-*"}]
    tables = stored(logs=logs)
    names = {"few-*": few, "most-*": 600}
    prints = extraction_fingerprints(tables.instance)
    rows = [
        logon_day(DAYS.last, events, log=name, settings_fingerprint=prints[name])
        for name, events in names.items()
    ]
    tables.tables.write_days([(table(LogonDays, *rows), empty(LogonCounts))])
    opened = {"few-*": Search(("wec", few, ["pc1", "pc2"])), "most-*": LogFile()}
    run = tables.run()
    run = replace(run, search=lambda: Logs(tables.instance, lambda one: opened[one.index]))
    verdict: Any = checks.evaluate(checks.hosts_send_their_own_events, run, blocking=True)
    assert (verdict.passed, verdict.severity) == (False, severity)
    assert verdict.description.startswith("logs.0 (few-*): hostname_field: 1 collector")
    assert f"{100 * few / (few + 600):.0f}% of all events" in verdict.description


def test_a_collector_does_no_harm_where_it_is_excluded(stored):
    tables = stored(rules={"exclude_hosts": ["wec*"]}).days()
    tables.search = Search(("wec01", 99, ["pc1", "pc2"]))
    assert tables.evaluate(checks.hosts_send_their_own_events).passed
    tables.search = LogFile()
    assert "cannot be found" in tables.evaluate(checks.hosts_send_their_own_events).description


@pytest.mark.parametrize(("blocking", "severity"), [(False, WARN), (True, ERROR)])
def test_a_check_that_cannot_run_fails_and_blocks_where_it_is_the_one_that_blocks(stored, blocking, severity):
    tables = stored().days()
    tables.search = Search(error=TransientError("The search service at https://search.example timed out"))
    verdict: Any = checks.evaluate(checks.hosts_send_their_own_events, tables.run(), blocking=blocking)
    assert (verdict.passed, verdict.severity) == (False, severity)
    assert "timed out" in verdict.description
