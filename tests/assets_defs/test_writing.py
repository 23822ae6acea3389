"""What a plan writes, and why one is refused: runs, `apply` and `undo` below Dagster."""

import logging
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import dagster as dg
import polars as pl
import pytest
import yaml

from assets_defs.evidence import day_tables, with_history
from assets_defs.plans import apply_plan, undo_run, write_planned
from assets_defs.record import RunRecord, as_dagster_failure
from assets_defs.run import MISSING_STEPS
from ownership.declaration import polars_schema
from ownership.history import latest
from ownership.tables import AuditSample
from ownership.windows import Window
from resources.errors import AssetOwnersError, ConfigurationError, ServiceError
from resources.ledger import KEY
from resources.search.source import DayOfLogons, extraction_fingerprint
from resources.settings import load_instance, system_user
from resources.store.files import write_file
from resources.store.retention import CHANGES, store_decisions
from sandbox.stored_run import store_writes
from tests.assets_defs.scans import LOG, ONE_DAY, decided
from tests.ownership.builders import NOW, PEOPLE, RUN, counts, host, hosts, resolution, table, user, users
from tests.pipelines.in_memory import Job, Shelf, records
from tests.resources.samples import instance, instance_content

pytestmark = [pytest.mark.jobs, pytest.mark.usefixtures("no_catalogue")]  # each applies a plan

PLATFORM = instance_content()["platform"]
WRITTEN = {"h1": {"owner": "u1"}}
ACTS = {"apply": apply_plan, "undo": undo_run}


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def planned(tmp_path, shelf):
    """A run that has planned an owner for its only host, and no more."""
    run = decided(tmp_path, instance(), shelf)
    write_planned(replace(run, why_no_writes="Dry run"))
    return run


def follow(run, what, about, *, run_id="next", dry_run=False, allow=None, hosts=(), wrong=None, **settings):
    """Apply or undo a run, by other settings where these are given; return hosts with their outcomes."""
    record = RunRecord(run.tables, run_id, None, LOG)
    record.begin(f"dry_run_of_{what}" if dry_run else what, of_run=about)
    following = replace(
        run,
        instance=instance(**settings),
        run_id=run_id,
        record=record,
        why_no_writes="Dry run" if dry_run else None,
    )
    written = ACTS[what](following, about, allow, hosts, **({"wrong": wrong} if wrong else {}))
    record.succeed()
    return dict(written.select("host_id", "outcome").iter_rows())


def refused(shelf, *names):
    """A refusal that names these, before anything is sent."""
    assert not shelf.written
    return pytest.raises(AssetOwnersError, match="(?s)" + ".*".join(names))


def test_a_plan_whose_apply_was_a_dry_run_is_applied_under_either_id(planned, shelf):
    assert follow(planned, "apply", RUN, run_id="tried", dry_run=True) == {"h1": "planned"}
    assert follow(planned, "apply", "tried") == {"h1": "written"}
    assert shelf.written == WRITTEN


def test_a_run_of_some_hosts_plans_these_alone(tmp_path):
    shelf = Shelf(host("h1", "pc-1"), host("h2", "pc-1", "second"))
    run = decided(tmp_path, instance(), shelf)
    write_planned(replace(run, options=run.options.model_copy(update={"hosts": ["second"]})))
    assert shelf.written.keys() == {"h2"}


@pytest.mark.parametrize(
    ("asset", "why"),
    [
        (host("h1", "pc-1"), "has no owner: somebody said that this host is not ann's. Somebody said"),
        (
            host("h1", "pc-1", owners=("u2",)),
            "belongs to bob@corp.example (u2) in the inventory, but its primary user is",
        ),
        (host("h1", "pc-1", owners=("u1",)), "belongs to ann@corp.example (u1): 6 of 6 logons on 1 day"),
        (host("h1", "pc-2"), "has no owner: "),
    ],
)
def test_of_a_host_with_nothing_to_write_a_run_says_why_and_of_one_that_is_not_known_it_fails(
    tmp_path, caplog, asset, why
):
    shelf = Shelf(asset, host("h2", "pc-9"))
    run = decided(tmp_path, instance(), shelf)
    if "somebody" in why:
        decisions = run.read("owner_decisions").collect()
        no = decisions.with_columns(
            evidence=pl.lit("answered_no"), match=None, resolved_owner=None, action=pl.lit("none")
        )
        run.tables.write("owner_decisions", no.cast(decisions.schema), run_id=RUN)

    def asked(*names):
        options = run.options.model_copy(update={"hosts": names})
        return write_planned(replace(run, options=options, why_no_writes="Dry run"))

    assert asked("H1").is_empty()
    assert f"Nothing to write for {asset['hostnames'][0]}, which {why}" in caplog.text
    with pytest.raises(ConfigurationError, match=r"hosts: no host 'pc-8' is known; name it"):
        asked("h1", "pc-8")


def test_a_plan_of_settings_that_were_tried_is_applied_once_the_file_has_them(tmp_path, shelf):
    file = tmp_path / "instance.yaml"
    file.write_text(yaml.safe_dump(instance_content()))
    tried = ["scan.enrich=false", "rules.exclude_users=[jo]"]
    run = decided(tmp_path, instance(), shelf, options={CHANGES: tried})
    write_planned(replace(run, why_no_writes="Dry run"))
    with refused(shelf, "other settings", "scan.enrich false, rules.exclude_users") as error:
        apply_plan(replace(run, instance=load_instance(file), run_id="before"), RUN, None)
    assert "[jo]" not in str(error.value), "a message names nobody"
    file.write_text(yaml.safe_dump(instance_content(scan={"enrich": False}, rules={"exclude_users": ["jo"]})))
    apply_plan(replace(run, instance=load_instance(file), run_id="after"), RUN, None)
    assert shelf.written == WRITTEN


def test_what_was_applied_is_shown_whatever_was_planned_or_decided_since(planned):
    """Its day is published as well, which the dry run kept to itself."""
    tables, folder = planned.tables, planned.tables.folder
    before = tables.read_own("owner_decisions", RUN)
    for file in folder.glob("*.parquet"):  # RUN published nothing
        write_file(pl.read_parquet(file).clear(), file)
    with tables.ledger() as ledger:
        ledger._execute("DELETE FROM together")
    day, counted = planned.days(planned.window), planned.counts(planned.window).collect()
    tables.write_days(
        [(day.with_columns(fetched_at=day["fetched_at"] + timedelta(hours=1)), counted)], run_id=RUN
    )
    nobody = before.with_columns(
        evidence=pl.lit("no_majority"),
        match=pl.lit(None, pl.String),
        resolved_owner=pl.lit(None, pl.String),
        action=pl.lit("none"),
        run_id=pl.lit("what-if"),
        decided_at=pl.col("decided_at") + timedelta(minutes=1),
    )
    for publish in (True, False):
        at = datetime.now(UTC)
        store_decisions(tables, nobody, decided_at=at, run_id="what-if", publish=publish)
    assert follow(planned, "apply", RUN) == {"h1": "written"}
    shown = tables.visible()
    assert shown.viewed is None
    assert shown.read("owner_decisions").select("run_id", "action").collect().rows() == [(RUN, "write")]
    assert shown.read("current_owners").collect()["owner_ids"].to_list() == [["u1"]]
    assert latest(tables.all_runs("owner_decisions_history"))["evidence"].to_list() == ["single_user"]
    assert tables.logon_days(planned.window, run_id=None)["fetched_at"].item() > day["fetched_at"].item()
    written, undone = tables.written_and_undone(RUN)
    assert (written, undone.height) == (1, 0)
    wrong = {"hosts": ["h1"], "wrong": True}
    assert follow(planned, "undo", "next", run_id="undoes", **wrong) == {"h1": "undone"}
    written, undone = tables.written_and_undone(RUN)
    assert (written, undone.rows()) == (1, [("h1", False)])
    later = pl.col("completed_at") + timedelta(hours=1)
    again = tables.run_writes("next").with_columns(later, run_id=pl.lit("again"))
    with tables.ledger() as ledger:
        ledger.store("owner_writes", again, run_id="again")
    assert tables.written_and_undone(RUN)[1].is_empty(), "it was given the same owner again"


EVE, OTHER_ANN = user("u1", email="eve@corp.example"), user("u9", email="Ann@other.example")
LEFT = user("u1", email="ann@corp.example", listed_values=["enabled: False"])
CHANGES_OF_USERS = {
    "gone": (PEOPLE[1:], "The account belongs to no person"),
    "another person has the id": (pl.concat([users(EVE), PEOPLE[1:]]), "The account belongs to no person"),
    "several have the name": (pl.concat([PEOPLE, users(OTHER_ANN)]), "Several user assets may be the user"),
    "another asset is hers": (
        pl.concat([users(EVE, OTHER_ANN), PEOPLE[1:]]),
        "The user has another user asset",
    ),
    "cannot be read": (
        pl.concat([users(user("u1", email="ann@corp.example", problem="odd")), PEOPLE[1:]]),
        "An unreadable user asset may be the user",
    ),
    "left": (pl.concat([users(LEFT), PEOPLE[1:]]), r"\(exclude_user_assets: enabled: false\)"),
}
CHANGES_OF_HOSTS = {
    "excluded": ([host("h1", "pc-1", listed_values=["group: Kiosks"])], r"\(exclude_assets: group: kiosks\)"),
    "second of the short name": (
        [host("h1", "pc-1", "pc-1.a.example"), host("h2", "pc-1.b.example")],
        "stands for hosts of different domains",
    ),
    "cannot be read": (
        [host("h1", "pc-1", problem="its field x holds a dict")],
        r"\(its field x holds a dict",
    ),
    "gone": ([host("h2", "pc-2")], "the inventory no longer lists it"),
    "of another id": ([host("H-1", "pc-1")], "the inventory no longer lists it"),
    "renamed": ([host("h1", "pc-9")], "has another name now than planned: its id may belong to another host"),
}


@pytest.mark.parametrize(
    ("people", "assets", "said"),
    [
        *((people, None, said) for people, said in CHANGES_OF_USERS.values()),
        *((PEOPLE, assets, said) for assets, said in CHANGES_OF_HOSTS.values()),
    ],
    ids=[*CHANGES_OF_USERS, *(f"host {change}" for change in CHANGES_OF_HOSTS)],
)
def test_what_the_rules_no_longer_decide_of_the_inventory_as_it_is_now_is_not_applied(
    tmp_path, people, assets, said
):
    """As after a directory was imported anew; a host is its id and its name, and so is a user."""
    rules = {
        "hostname_match": "short",
        "exclude_assets": {"group": ["kiosks"]},
        "exclude_user_assets": {"enabled": ["false"]},
    }
    shelf = Shelf()
    planned = decided(tmp_path, instance(rules=rules), shelf)
    write_planned(replace(planned, why_no_writes="Dry run"))
    shelf.users = lambda: people
    if assets:
        listed = hosts(*assets)
        shelf.hosts = lambda: listed
    assert follow(planned, "apply", RUN, rules=rules) == {"h1": "not_written"}
    assert re.search(said, planned.tables.run_writes("next")["message"].item())
    [run] = planned.tables.rows("runs", "next").to_dicts()
    assert (run["to_write"], run["failed"], run["left_alone"], shelf.written) == (0, 0, 1, {})


@pytest.mark.parametrize(("days_ago", "outcome"), [(399, "not_written"), (401, "written")])
def test_an_owner_whom_an_audit_answered_no_is_not_written_until_the_answer_expires(
    planned, days_ago, outcome
):
    row = planned.tables.read_own("owner_decisions", RUN).row(0, named=True)
    row |= {"user_id": "u1", "right": False, "evidence": "1 logon", "seed": 1, "drawn_at": NOW}
    row |= {"answered_at": datetime.now(UTC) - timedelta(days=days_ago), "rules": "{}", "username": "x"}
    row |= {"window_from": planned.window.first, "window_to": planned.window.last}
    sample = table(AuditSample, {name: row.get(name) for name in polars_schema(AuditSample)})
    planned.tables.write("audit_sample", sample, run_id=RUN, publish=True)
    assert follow(planned, "apply", RUN) == {"h1": outcome}
    said = planned.tables.run_writes("next")["message"].item() or ""
    assert ("Somebody said, in an audit" in said) == (outcome == "not_written")


@pytest.mark.parametrize("before", ["held", "undone", "changed by a person", "dry run"])
def test_an_owner_that_an_undo_calls_wrong_is_not_written_again_and_others_are(tmp_path, before):
    """Also of a host that had been undone, and where somebody set another owner; no audit was ever drawn."""
    shelf = Shelf(host("h1", "pc-1"), host("h2", "pc-1", "second"))
    run = decided(tmp_path, instance(), shelf)
    write_planned(run)
    with pytest.raises(ConfigurationError, match="whose owners are wrong"):
        follow(run, "undo", RUN, run_id="all", wrong=True)
    if before == "undone":
        follow(run, "undo", RUN, run_id="before")
    if before == "changed by a person":
        shelf.assets["h1"]["owner_ids"] = ["u2"]
    said = {"hosts": ["h1"], "wrong": True, "dry_run": before == "dry run"}
    follow(run, "undo", RUN, **said)
    columns = ("host_id", "user_id", "username", "right", "answered_by")
    stored = run.tables.read("audit_sample").select(columns).collect()
    assert stored.rows() == ([] if before == "dry run" else [("h1", "u1", "ann", False, system_user())])
    follow(run, "undo", RUN, run_id="rest")
    shelf.assets["h1"]["owner_ids"] = []
    again = follow(run, "apply", RUN, run_id="again")
    assert again == {"h1": "written" if before == "dry run" else "not_written", "h2": "written"}


def test_who_was_answered_no_stays_so_under_assets_that_were_made_anew(planned):
    """As after a directory was imported anew; whoever has the account beside that asset is another person."""
    no = {"host_id": "h1", "hostname": "pc-1", "user_id": "u1", "username": "ann", "right": False}
    times = {"answered_at": datetime.now(UTC), "drawn_at": NOW}
    planned.tables.write("audit_sample", table(AuditSample, no | times | {"run_id": RUN}))
    logons = planned.counts(planned.window)
    ann, other = user("u1", email="ann@corp.example"), host("h1", "pc-2")
    for people, assets, evidence in (
        ([OTHER_ANN], [host("h1", "pc-1")], "answered_no"),
        ([EVE, OTHER_ANN], [host("h1", "pc-1")], "single_user"),
        ([OTHER_ANN, user("u8", email="ann@third.example")], [host("h1", "pc-1")], "single_user"),
        ([ann], [host("H-1", "PC-1")], "answered_no"),
        ([OTHER_ANN], [host("H-1", "PC-1")], "answered_no"),
        ([ann], [host("H-1", "pc-1"), other], "single_user"),
    ):
        run = resolution(logons, users(*people), hosts(*assets), window=planned.window)
        knowing = with_history(run, planned.instance, planned.tables, run_id=RUN)
        decisions = knowing.decide(run.matches, decided_at=NOW, run_id=RUN)
        assert decisions.filter(hostname="pc-1")["evidence"].to_list() == [evidence]


@pytest.mark.parametrize(
    ("settings", "outcome"),
    [(None, "not_written"), ("present", "written"), ("other", "not_written"), ("answered", "not_written")],
)
def test_a_plan_is_applied_if_the_days_before_named_the_same_owner(tmp_path, shelf, settings, outcome):
    """Rules 1.13. Days that were fetched with other settings do not count."""
    rules, day = {"min_stable_days": 2}, ONE_DAY.last - timedelta(days=1)
    planned = decided(tmp_path, instance(rules=rules), shelf)
    write_planned(replace(planned, why_no_writes="Dry run"))
    if settings == "answered":
        no = {"host_id": "h1", "user_id": "u1", "right": False, "answered_at": NOW, "drawn_at": NOW}
        planned.tables.write("audit_sample", table(AuditSample, no | {"run_id": RUN}))
    elif settings:
        logons = DayOfLogons(day, NOW, 6, 0, 0, counts=counts(("pc-1", "ann", 6, day)).collect())
        fingerprint = extraction_fingerprint(planned.instance) if settings == "present" else settings
        planned.tables.write_days([day_tables(logons, planned.instance.index, fingerprint)])
    assert follow(planned, "apply", RUN, rules=rules) == {"h1": outcome}
    said = planned.tables.run_writes("next")["message"].item() or ""
    assert ("has been named for 1 " in said) == (outcome == "not_written")


def test_a_plan_whose_logons_are_not_stored_any_more_is_refused(planned, shelf):
    (planned.tables.folder / "logon_counts" / f"{planned.window.last}.parquet").unlink()
    with refused(shelf, "the logons of 1 of its 1 days are not stored any more", "run .*--dry-run"):
        follow(planned, "apply", RUN)


@pytest.mark.parametrize(("then", "now"), [(True, False), (False, True), (True, True)])
def test_a_plan_copies_a_department_only_if_plan_and_settings_say_so(tmp_path, shelf, then, now):
    shelf.takes = ("owner", "department")
    planned = decided(tmp_path, instance(scan={"enrich": then}), shelf)
    write_planned(replace(planned, why_no_writes="Dry run"))
    assert follow(planned, "apply", RUN, scan={"enrich": now}) == {"h1": "written"}
    assert shelf.written == {"h1": {"owner": "u1"} | ({"department": "Sales"} if then and now else {})}


def test_a_plan_copies_no_department_that_its_owner_has_left(tmp_path, shelf, monkeypatch):
    shelf.takes = ("owner", "department")
    planned = decided(tmp_path, instance(), shelf)
    write_planned(replace(planned, why_no_writes="Dry run"))
    monkeypatch.setattr(shelf, "users", lambda: PEOPLE.with_columns(user_department=pl.lit("Legal")))
    assert follow(planned, "apply", RUN) == {"h1": "not_written"}
    [said] = planned.tables.run_writes("next")["message"]
    assert said.endswith("now: The owner's department is Legal now, not Sales")
    monkeypatch.undo()
    assert follow(planned, "apply", RUN, run_id="later") == {"h1": "written"}
    assert shelf.written == {"h1": {"owner": "u1", "department": "Sales"}}


def test_an_undo_is_neither_applied_nor_undone_and_the_right_command_is_named(planned, shelf):
    """Nor is its dry run."""
    write_planned(planned)
    assert follow(planned, "undo", RUN, run_id="tried", dry_run=True) == {"h1": "planned"}
    for what in ACTS:
        with pytest.raises(ConfigurationError, match=rf"asset-owners undo .*{RUN}$"):
            follow(planned, what, "tried", run_id=f"{what}-1")
    assert shelf.written == WRITTEN
    assert follow(planned, "undo", RUN, run_id="undone") == {"h1": "undone"}
    for what in ACTS:
        with pytest.raises(ConfigurationError, match="asset-owners run "):
            follow(planned, what, "undone", run_id=f"{what}-2")
    assert shelf.written == {"h1": {"owner": ""}}
    assert follow(planned, "undo", RUN, run_id="again") == {"h1": "not_written"}


def test_a_host_that_was_written_since_by_another_contract_is_not_undone(planned, shelf):
    """It is the same inventory, whichever way it was asked."""
    later = write_planned(planned).with_columns(
        run_id=pl.lit("later"),
        target=pl.lit(instance(platform={**PLATFORM, "contract": {"read": None}}).target),
        completed_at=pl.lit(datetime.now(UTC)),
    )
    store_writes(planned.tables, later, run_id="later")
    assert follow(planned, "undo", RUN) == {"h1": "not_written"}
    assert shelf.written == WRITTEN


def test_what_a_dead_run_left_pending_is_settled_by_a_run_and_not_by_a_dry_undo(planned, shelf):
    written = write_planned(planned)
    shelf.assets["h1"]["owner_ids"] = []
    dead = written.with_columns(run_id=pl.lit("dead"), outcome=pl.lit("intended"))
    with planned.tables.ledger() as ledger:
        ledger.intend(dead)
        ledger.intend(dead.with_columns(run_id=pl.lit("failed"), outcome=pl.lit("failed")))
        ledger.intend(dead.with_columns(run_id=pl.lit("elsewhere"), target=pl.lit("another")))
    follow(planned, "undo", RUN, run_id="tried", dry_run=True)
    with planned.tables.ledger() as ledger:
        assert ledger.rows("owner_writes", "dead")["outcome"].to_list() == ["intended"]
    write_planned(planned)
    with planned.tables.ledger() as ledger:
        assert ledger.targets() == {"elsewhere": "another"}
    for run_id, outcome in (("dead", "not_written"), ("failed", "failed")):
        assert planned.tables.rows("owner_writes", run_id)["outcome"].to_list() == [outcome]


@pytest.mark.parametrize("hours", [1, -1], ids=["by a later plan", "by an earlier plan"])
def test_of_two_runs_whose_answers_were_lost_the_one_that_wrote_later_has_written(planned, shelf, hours):
    """It had read that the host had no owner."""
    lost = planned.tables.run_writes(RUN).with_columns(outcome=pl.lit("intended"))
    shelf.assets["h1"]["owner_ids"] = ["u1"]
    planned_at = pl.col("intended_at") + timedelta(hours=hours)
    with planned.tables.ledger() as ledger:
        ledger.intend(lost.with_columns(run_id=pl.lit("a")))
        ledger.intend(lost.with_columns(planned_at, run_id=pl.lit("b")))
        for run_id in ("a", "b"):
            ledger.mark_attempted(run_id, "h1")
    write_planned(planned)
    outcomes = [planned.tables.rows("owner_writes", run_id)["outcome"].item() for run_id in ("a", "b")]
    assert outcomes == ["not_written", "written"]


def test_an_apply_whose_answer_was_lost_wrote_what_is_there_whoever_did_between_plan_and_apply(planned):
    follow(planned, "apply", RUN, run_id="first")
    RunRecord(planned.tables, "second", None, LOG).begin("apply", of_run=RUN)
    lost = planned.tables.run_writes(RUN).with_columns(outcome=pl.lit("intended"), run_id=pl.lit("second"))
    with planned.tables.ledger() as ledger:
        ledger.intend(lost)
        ledger.mark_attempted("second", "h1")
    write_planned(planned)
    assert planned.tables.rows("owner_writes", "second")["outcome"].item() == "written"


def test_a_plan_that_rests_on_what_other_runs_made_is_not_applied(tmp_path, shelf):
    run = decided(tmp_path, instance(), shelf, options={MISSING_STEPS: ["logons", "inventory_users"]})
    write_planned(replace(run, why_no_writes="It lacks steps"))
    with refused(shelf, "did not make logons, inventory_users"):
        follow(run, "apply", RUN)


def test_a_host_that_shows_no_owner_by_itself_keeps_a_run_from_writing(tmp_path):
    """Where owners lie deeper in what one asset is read as than in the list, the guard would see none."""
    inventory = Shelf(host("h1", "pc-1"), host("h2", "pc-2", owners=("u2",)))
    inventory.host = lambda host_id: inventory.assets[host_id] | {"owner_ids": []}
    inventory.how_read = "the labels of the shelf"
    with refused(inventory, "Check the labels of the shelf"):
        write_planned(decided(tmp_path, instance(), inventory))


def test_a_file_that_was_changed_while_the_run_worked_stops_the_writing(tmp_path, shelf):
    file = tmp_path / "instance.yaml"
    file.write_text(yaml.safe_dump(instance_content()))
    run = decided(tmp_path, load_instance(file), shelf)
    file.write_text(yaml.safe_dump(instance_content(writes={"dry_run": True})))
    with refused(shelf, "was changed while this run worked"):
        write_planned(run)
    assert not shelf.written
    file.write_text("# A comment\n" + yaml.safe_dump(instance_content()))
    write_planned(run)
    assert shelf.written == WRITTEN


def test_days_without_usual_events_stop_the_writing_where_that_is_asked_for(tmp_path, shelf):
    run = decided(tmp_path, instance(scan={"require_complete_window": True}), shelf)
    day_before = run.window.last - timedelta(days=1)
    none = {name: pl.lit(0, pl.Int64) for name in ("matching", "counted")}
    row = run.days(run.window).with_columns(day=pl.lit(day_before), **none)
    run.tables.write_days([(row, counts().collect())])
    with refused(shelf, rf"\({day_before}\)", r"scan\.require_complete_window", f"apply .*{RUN}"):
        write_planned(replace(run, window=Window(day_before, run.window.last)))


def test_to_undo_a_plan_names_the_runs_that_applied_it(planned, shelf):
    with refused(shelf, "wrote nothing that could be undone$"):
        follow(planned, "undo", RUN)
    assert follow(planned, "apply", RUN, run_id="applied") == {"h1": "written"}
    with pytest.raises(ConfigurationError, match=r"asset-owners undo .*applied$"):
        follow(planned, "undo", RUN, run_id="further")
    with pytest.raises(ConfigurationError, match=r"undo .*applied --host h1 --wrong$"):
        follow(planned, "undo", RUN, run_id="further", hosts=("h1",), wrong=True)
    first = planned.tables.rows("runs", "applied")
    planned.tables.append("runs", first.with_columns(run_id=pl.lit("part-2")))
    with pytest.raises(ConfigurationError, match=r"by runs applied, part-2\. To undo .*applied; .*part-2$"):
        follow(planned, "undo", RUN, run_id="further")


def test_a_run_without_the_ledger_that_others_share_says_what_that_means(planned, shelf, caplog):
    (planned.tables.folder / KEY).write_text("a key of the database", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        write_planned(planned)
    assert "ASSET_OWNERS_JOURNAL is not set" in caplog.text
    assert shelf.written == WRITTEN


class Refusing(Shelf):
    """Refuses each write."""

    def write(self, host_id, values, *, right_before):  # noqa: ARG002
        right_before()
        raise ServiceError("The inventory refuses it")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"started_at": datetime.now(UTC) - timedelta(days=8)}, r"older than writes\.plan_days \(7\)"),
        ({"checked_at": None}, "did not make blocking_check"),
    ],
    ids=["old", "not checked"],
)
def test_what_is_old_or_was_not_checked_is_not_written(tmp_path, shelf, changed, says):
    """Whatever lets a run go so far: the sink looks at what is stored."""
    with refused(shelf, says):
        write_planned(decided(tmp_path, instance(), shelf, **changed))
    assert shelf.written == {}


@pytest.mark.parametrize(("owners", "written"), [((), ["h1"]), (("u1",), [])])
def test_a_sink_that_is_started_again_under_its_id_writes_nothing_more_and_loses_no_row(
    tmp_path, shelf, owners, written
):
    """As a queue delivers a step twice, or a run is resumed; also where there is nothing to write."""
    first = decided(tmp_path, instance(), Shelf(host("h1", "pc-1", owners=owners)))
    write_planned(first)
    rows = first.tables.run_writes(RUN)
    write_planned(decided(tmp_path, instance(), shelf))
    assert shelf.written == {}
    assert first.tables.run_writes(RUN).equals(rows)
    assert rows.filter(outcome="written")["host_id"].to_list() == written


def test_a_sink_that_is_started_again_after_too_many_failures_fails_as_its_row_says(tmp_path, shelf):
    settings = instance(writes={"max_failed_writes": 1})
    for inventory in (Refusing(), shelf):
        run = decided(tmp_path, settings, inventory)
        with pytest.raises(dg.DagsterUserCodeExecutionError), as_dagster_failure(run.record, last=True):
            write_planned(run)
        assert run.record.row()["status"] == "failed"
        assert "the next run writes the rest" in run.record.row()["message"]
    assert shelf.written == {}


def test_each_conflict_is_logged_with_the_ids_of_the_host_and_both_owners(tmp_path):
    owned = Shelf(host("h1", "pc-1", owners=("u2",)))
    result = Job(tmp_path, instance(), inventory=owned)()
    logged = [entry.user_message for entry in records().all_logs(result.run_id)]
    assert "Conflict: host h1 has the owner u2, and not u1" in logged
