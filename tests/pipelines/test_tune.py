"""`asset-owners tune`, on a stored run: strong evidence was right, half of the weak was not."""

import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import dagster as dg
import polars as pl
import pytest
import yaml

from assets_defs.evidence import answers_of_audits
from assets_defs.report import Report
from assets_defs.tuning import describe_settings, how_sure, judged_decisions, stored_inputs
from ownership.declaration import empty
from ownership.rules import Rules
from ownership.tables import AuditSample, LogonDays, OwnerDecisions
from ownership.tuning.confidence import draw_sample
from ownership.windows import Window, days_of, window_before
from pipelines.cli.diff import compare
from pipelines.cli.results import commands_to_review
from pipelines.dagster_home import dagster_instance
from reports.sheets import answered_wrong, as_sample
from resources.errors import ConfigurationError
from resources.search.source import counted_as
from resources.settings import load_instance, system_user
from resources.settings.models import recommended
from resources.store.tables import Tables
from sandbox.stored_run import store_run, store_writes
from tests.ownership import builders
from tests.ownership.builders import NOW, RUN, WINDOW, counts, host, hosts, resolution, table, user, users
from tests.resources.writeback.world import plan, values

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_catalogue", "unrecorded")]  # runs jobs

DAY = WINDOW.last - timedelta(days=10)
DEPARTMENTS = {"s": "Sales", "w": None}
PEOPLE = users(
    *(
        user(f"{kind}{n}", email=f"{kind}{n}@corp.example", user_department=department)
        for kind, department in DEPARTMENTS.items()
        for n in range(40)
    )
)
RULE = "rule: more than 60% over 30 days"
LOGONS = counts(
    *((f"s{n}", f"s{n}", 5, DAY) for n in range(40)),
    *(row for n in range(30) for row in ((f"w{n}", f"w{n}", 7, DAY), (f"w{n}", "bob", 3, DAY))),
).collect()


def assets(by_hand):
    """So many of the strong have the right owner; of the weak 26 have one, every other the right one."""
    return hosts(
        *(host(f"s{n}", f"s{n}", owners=(f"s{n}",) if n < by_hand else ()) for n in range(40)),
        *(
            host(f"w{n}", f"w{n}", owners=((f"w{n}", "s1")[n % 2],) if by_hand and n < 26 else ())
            for n in range(30)
        ),
    )


@pytest.fixture(scope="module")
def home_to_copy(tmp_path_factory):
    """Homes to copy, of an instance whose last run saw `assets`."""

    def of(day):
        rows = LOGONS.filter(day=day)
        return table(LogonDays, builders.logon_day(day, int(rows["events"].sum()))), rows

    @cache
    def made(by_hand, *, publish):
        tables, listed = Tables(tmp_path_factory.mktemp("stored") / "home", "head_office"), assets(by_hand)
        tables.prepare()
        tables.write_days([*map(of, days_of(WINDOW))], run_id=None if publish else RUN)
        run = resolution(LOGONS.lazy(), PEOPLE, listed)
        store_run(tables, run, run_id=RUN, decided_at=NOW, hosts=listed, users=PEOPLE, publish=publish)
        return tables.home

    return made


@pytest.fixture
def home_with(tmp_path, home_to_copy):
    """The home of such an instance."""

    def copied(by_hand=0, *, publish=True):
        shutil.copytree(home_to_copy(by_hand, publish=publish), tmp_path / "home")
        return Tables(tmp_path / "home", "head_office", name="Head office")

    return copied


@pytest.fixture
def tune(call, instance_file):
    """Call `tune` on the instance."""
    return lambda *options: call("tune", "--instance", instance_file, *options)


def test_scripts_learn_why_it_failed(tune, home_with):
    home_with().write("owner_decisions", empty(OwnerDecisions))
    status, printed, error = tune("--json")
    assert (status, json.loads(printed.splitlines()[-1])["error"] in error) == (1, True)
    assert "has no decisions yet to try other settings on" in error


def fill_in(sheet, no=0, instead=""):
    """Answer yes on a sheet, and no for the hosts of so many first rows; return its lines."""
    heading, *rows = sheet.read_text(encoding="utf-8-sig").splitlines()
    wrong = {row.partition(",")[0] for row in rows[:no]}
    given = [row[:-1] + (f"no,{instead}" if row.partition(",")[0] in wrong else "yes,") for row in rows]
    sheet.write_text("\n".join([heading, *given]), encoding="utf-8-sig")
    return heading, given


def test_what_is_found_is_said_as_one_object_and_in_words_and_changes_no_decision(
    tune, instance_file, home_with
):
    tables = home_with(by_hand=36)
    before = tables.read("owner_decisions").collect()
    status, printed, _ = tune("--json", "--keep", "20")
    found = json.loads(printed.splitlines()[-1])
    assert (status, found["instance"], found["window"]["days"]) == (0, "Head office", 30)
    later = [
        (table(LogonDays, builders.logon_day(day, 0, fetched_at=NOW + timedelta(days=9))), LOGONS.clear())
        for day in days_of(window_before(WINDOW.last, 2))
    ]
    settled = stored_inputs(instance := load_instance(instance_file), tables, before).last_settled
    tables.write_days(later, run_id=None)
    assert stored_inputs(instance, tables, before).last_settled == settled, "whatever is fetched since"
    now, best = found["now"], found["best"]
    assert (now["threshold_percent"], now["to_write"], now["no_claim"]) == (60, 8, None)
    assert now["wrong"]["estimate"] == pytest.approx(4 * 0.5 / 37 + 4 * 13.5 / 27)
    assert (best["evidence_metric"], best["to_write"], best["wrong"]["measure"]) == ("days", 4, "people")
    assert found["tried"] == tables.read("threshold_backtest").collect().height
    printed = tune("--keep", "20")[1]
    assert f"8 owners would be written ({RULE}), about 2 of them wrong" in printed
    assert 'rules:\n  evidence_metric: "days"\n' in printed
    assert tables.read("owner_decisions").collect().equals(before)
    assert tables.writes().collect().is_empty()


def test_the_recommended_settings_that_the_file_does_not_have_are_tried_by_one_command(
    tune, instance_file, home_with
):
    tables = home_with()
    content = yaml.safe_load(instance_file.read_text()) | {"rules": {"min_active_days": 5}}
    instance_file.write_text(yaml.safe_dump(content))
    _, printed, _ = tune()
    [command] = [line for line in printed.splitlines() if " --set " in line]
    lines = tables.read("threshold_backtest").collect()
    page = describe_settings(load_instance(instance_file), tables, lines)
    assert page["stricter_settings"].endswith(f"compare: {command.strip()}"), (
        "on Dagster's page of the settings tried, too"
    )
    assert page["now"].value.partition("\n")[0] in printed
    best = page["best"].value
    assert {*best.split("\n\n")} <= {*printed.splitlines(), ""}
    assert "How sure each owner is" in best
    _, *changes = command.split(" --set ")
    tried = load_instance(instance_file, changes)
    assert (tried.rules.min_active_days, tried.scan.lookback_days) == (5, 60)
    assert tried.rules.model_fields_set == {*recommended()["rules"]}
    rules = tried.rules.model_dump(exclude_unset=True)
    instance_file.write_text(yaml.safe_dump(content | {"rules": rules, "scan": {"lookback_days": 30}}))
    assert " --set " not in tune()[1]


def test_an_answered_audit_says_how_many_are_wrong_wherever_that_is_said(
    call, tune, instance_file, home_with, tmp_path
):
    tables, sheet = home_with(publish=False), tmp_path / "a.csv"
    assert tune("--audit", "40", "--seed", "7", "--audit-file", sheet)[0] == 0
    heading, given = fill_in(sheet, no=4, instead="W9@corp.example")
    parts = {tmp_path / "one.csv": given[:9], tmp_path / "other.csv": given[9:]}
    for part, answered in parts.items():
        part.write_text("\n".join([heading, *answered]), encoding="utf-8-sig")
    status, printed, _ = tune(*(word for part in parts for word in ("--audit-answers", part)), "--json")
    now = json.loads(printed.splitlines()[-1])["now"]
    assert (status, now["no_claim"], now["wrong"]["measure"]) == (0, None, "audit")
    assert 4 < now["wrong"]["estimate"] < 4 + 30 * 4.5 / 41  # some of the answers may be wrong
    stored = tables.read("audit_sample").collect()
    assert stored["answered_by"].to_list() == [system_user()] * 40
    assert stored["answered_at"].null_count() == 0
    assert (stored["right"].sum(), set(stored["seed"])) == (36, {7})
    assert stored["instead_id"].drop_nulls().to_list() == ["w9"] * 4
    said = "about {:.0f} of them wrong ({:.0f} to {:.0f})".format(*list(now["wrong"].values())[:3])
    assert said in tune()[1]
    call("report", "--instance", instance_file, "--out", tmp_path / "report.html")
    assert said in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("decided_since", [False, True])
def test_an_audit_has_one_verdict_about_the_plan_that_it_was_drawn_from(
    tune, home_with, tmp_path, decided_since
):
    """Also once a run with nothing to write has decided; an undone owner is not asked about, and stays."""
    tables, sheet = home_with(), tmp_path / "a.csv"
    wrong = plan("s1", new=values("s1"), run_id="other")
    tables.write(
        "audit_sample", answered_wrong(empty(AuditSample), wrong, empty(OwnerDecisions), at=NOW, by="x")
    )
    assert tune("--audit", "69", "--seed", "7", "--audit-file", sheet)[0] == 0
    fill_in(sheet, no=4)
    if decided_since:
        decide_again(tables, assets(by_hand=0).with_columns(owner_ids=pl.concat_list("host_id")))
    printed = tune("--audit-answers", sheet)[1]
    assert printed.startswith("Good enough: at least 92% of these owners are right (--target-precision asks")
    assert ": 69 of 69 owners are answered, 65 of them right.\n5 hosts asked twice: the answers" in printed
    assert "\nOf the 70 planned owners about 4 are wrong (4 to 5)" in printed
    assert re.search(r"69 clear answers.\nTake this one \(.*\):\n  rules.min_confidence: \d\d  ", printed)
    assert ".yaml 'SELECT hostname, confidence FROM owner_decisions ORDER BY confidence'\n" in printed
    assert "would be written" not in printed.partition(" combinations of settings")[0]
    assert ("What other settings lead to now: " in printed) == decided_since
    assert tables.read("audit_sample").filter(host_id="s1").collect()["right"].to_list() == [False]


@pytest.fixture
def written(home_with, instance_file):
    """Its seventy owners are written; of fifty that were checked four are wrong.

    Gives the tables, the fifty hosts, and how rows of today end.
    """
    tables, instance, now = home_with(), load_instance(instance_file), datetime.now(UTC)
    decisions = tables.read("owner_decisions").collect()
    fields = {"outcome": "written", "intended_at": now, "completed_at": now, "target": instance.target}
    planned = decisions.filter(action="write")
    rows = pl.concat(plan(one, new=values(one), run_id=RUN, **fields) for one in planned["host_id"])
    store_writes(tables, rows, run_id=RUN)
    asked, rules = draw_sample(decisions, 50, seed=1), instance.rules.as_rules()
    sample = as_sample(
        asked, seed=1, drawn_at=now, window=WINDOW, rules=rules, counted=counted_as(instance)
    ).with_columns(right=pl.int_range(pl.len()) >= 4, answered_at=now)
    tables.write("audit_sample", sample)
    return tables, sample["host_id"], fields


def test_of_a_plan_that_was_written_in_part_the_rest_is_drawn(tune, home_with):
    tables, now = home_with(), datetime.now(UTC)
    fields = {"outcome": "written", "intended_at": now, "completed_at": now}
    rows = pl.concat(plan(one, new=values(one), run_id=RUN, **fields) for one in ("s1", "s2"))
    store_writes(tables, rows, run_id=RUN)
    _, printed, told = tune("--audit", "70", "--seed", "7")
    assert "68 owners planned by run" in told
    assert '"s3"' in printed
    assert not re.search('"s[12]"', printed)


def undo_five(tables, undone, fields):
    undos = pl.concat(plan(one, new=values(), undoes=RUN, **fields | {"outcome": "undone"}) for one in undone)
    store_writes(tables, undos.with_columns(run_id=pl.lit("undo")), run_id="undo")
    no_owner = pl.when(pl.col("host_id").is_in(undone.implode())).then([])
    return assets(by_hand=0).with_columns(
        listed_at=fields["completed_at"], owner_ids=no_owner.otherwise(pl.concat_list("host_id"))
    )


def decide_again(tables, owned, people=PEOPLE):
    later: Any = {"run_id": "later", "decided_at": datetime.now(UTC)}
    run = resolution(LOGONS.lazy(), people, owned, **later)
    store_run(tables, run, hosts=owned, users=people, **later)


def verdict(undone):
    """What is said of the seventy owners, of which so many are undone."""
    said = f"70 owners were written ({RULE}). {undone} undone since, 4 of these answered no"
    return f"{said}. Of the other {70 - undone} about 0 are wrong (0 to 5)"


def test_a_verdict_is_about_the_last_run_that_wrote_enough_wherever_that_is_said(
    call, tune, instance_file, written, tmp_path
):
    """Also once a run has found nothing to write."""
    tables, checked, fields = written
    before = tune()[1]
    estimate = before.partition("70 owners were written")[2].partition("\n")[0]
    assert ", about 4 of them wrong (4 to 9)" in estimate
    least = before.partition("The least sure, to check by hand")[2].partition("\n")[0]
    assert "% sure)" in least
    assert not any(f" {host_id} (" in least for host_id in checked[:4])
    owned = undo_five(tables, checked[:5], fields)
    decide_again(tables, owned.with_columns(owner_ids=pl.concat_list("host_id")))
    after = tune()[1]
    assert verdict(undone=5) in after
    lines = tables.read("threshold_backtest").collect()
    shown = describe_settings(load_instance(instance_file), tables, lines)
    assert verdict(undone=5) in shown["now"].value
    assert "rules.min_confidence" in shown["best"].value
    assert "The least sure" not in shown["best"].value, "Dagster's pages of tuning name nobody"
    assert f"{checked[4]} (" not in after.partition("The least sure, to check by hand")[2].partition("\n")[0]
    call("report", "--instance", instance_file, "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert verdict(undone=5) in page
    assert "Of 50 owners by these rules that somebody checked" not in page


@pytest.mark.parametrize(
    ("since", "undone"),
    [("nothing", 5), ("a run that failed", 5), ("one owner", 4), ("hosts and people left", 5)],
)
def test_whatever_ran_since_the_verdict_is_about_the_last_run_that_wrote_enough(
    instance_file, written, since, undone
):
    tables, checked, fields = written
    owned, left = undo_five(tables, checked[:5], fields), checked[40:].implode()
    if since == "a run that failed":
        tables.write("inventory_hosts", owned)
        tables.store_current_owners()
    elif since == "hosts and people left":
        remain = ~pl.col("host_id").is_in(left), ~pl.col("user_id").is_in(left)
        decide_again(tables, owned.filter(remain[0]), PEOPLE.filter(remain[1]))
    elif since == "one owner":  # given the same owner again, it is not undone
        decide_again(tables, owned)
        after = fields | {"completed_at": fields["completed_at"] + timedelta(seconds=1)}
        one = plan(checked[4], new=values(checked[4]), run_id="later", **after)
        store_writes(tables, one, run_id="later")
    assert verdict(undone) in how_sure(load_instance(instance_file), tables)[0]


def test_a_plan_that_waits_is_judged_itself_on_its_page_alone_and_other_rules_by_themselves(
    instance_file, written
):
    tables, checked, fields = written
    decide_again(tables, undo_five(tables, checked[:5], fields))
    waits = pl.concat(plan(one, new=values(one), run_id="later") for one in checked[:5])
    tables.write("owner_writes", waits, run_id="later", publish=False)
    instance = load_instance(instance_file)
    assert verdict(undone=5) in how_sure(instance, tables)[0]
    page = Report(instance, tables).html()
    assert f"5 owners would be written ({RULE})." in page
    assert "Of 50 owners by these rules that somebody checked, 46 are right." in page
    stricter = instance.rules.model_copy(update={"share_threshold_percent": 75})
    others = instance.model_copy(update={"rules": stricter})
    assert "40 owners would be written (rule: more than 75% over 30 days)" in how_sure(others, tables)[0]
    tried = pl.lit(json.dumps({"set": ["rules.share_threshold_percent=65"]}))
    tables.append("runs", tables.rows("runs", "later").with_columns(options=tried), run_id="later")
    assert "5 owners would be written (rule: more than 65% over 30 days)" in Report(instance, tables).html()


def test_where_the_run_of_a_plan_is_kept_no_longer_its_decisions_are_not_judged(
    call, instance_file, home_with
):
    """What is stored of runs is deleted by other times: rows by their end, files by their last change."""
    tables, now = home_with(), datetime.now(UTC)
    fields = {"outcome": "written", "intended_at": now, "completed_at": now}
    store_writes(tables, plan("s1", new=values("s1"), run_id=RUN, **fields), run_id=RUN)
    decide_again(tables, assets(by_hand=1))
    assert judged_decisions(tables)["run_id"].unique().to_list() == [RUN]
    with tables.changing(), tables.ledger() as ledger:
        ledger.delete("runs", ledger.rows("runs").filter(run_id=RUN))
        tables.publish(ledger)
    assert judged_decisions(tables)["run_id"].unique().to_list() == ["later"]
    assert call("tune", "--instance", instance_file)[0] == 0
    with pytest.raises(ConfigurationError, match="its decisions are no longer kept"):
        compare(tables, RUN, "later")
    assert "no host has an owner" in call("tune", "--instance", instance_file, "--audit", "5", "--written")[2]


NOT_KNOWN = "not known, because too few answers to audits are about these settings"


@pytest.mark.parametrize(
    ("known", "answers", "owners", "said"),
    [
        (True, 50, 1, "How sure each owner is:\n    asset-owners sql "),
        (False, 50, 1, NOT_KNOWN),
        (False, 50, 0, NOT_KNOWN),
        (False, 0, 1, ""),
    ],
)
def test_a_plan_names_the_sheet_and_where_it_is_said_how_sure_each_owner_is(
    instance_file, home_with, known, answers, owners, said
):
    tables, instance = home_with(), load_instance(instance_file)
    ids, now = {"host_id": "h", "user_id": "u", "run_id": RUN}, datetime.now(UTC)
    answer = {**ids, "right": True, "seed": 1, "drawn_at": now, "answered_at": now}
    tables.write("audit_sample", table(AuditSample, *[answer] * answers))
    decisions = pl.DataFrame({"confidence": [0.9 if known else None]}, schema={"confidence": pl.Float64})
    report = {"run_id": "1234567890", "plan": [{}] * owners}
    text = "\n".join(commands_to_review(instance, tables, report, decisions))
    assert ("--run 12345678 --format xlsx" in text) == bool(owners)
    assert said in text
    assert ("How sure" in text) == bool(said)


def test_a_least_confidence_asks_for_fifty_answers_and_is_learnt_from_them(instance_file, home_with):
    tables = home_with()
    content = yaml.safe_load(instance_file.read_text())
    rules = {"min_confidence": 80, "exclude_users": ["x", "y"]}
    instance_file.write_text(yaml.safe_dump(content | {"rules": rules}))
    instance = load_instance(instance_file)
    too_few = pytest.raises(ConfigurationError, match=r"rules.min_confidence: needs 50 answers .* --audit 50")
    with too_few:
        answers_of_audits(instance, tables, WINDOW)
    decisions = tables.read("owner_decisions").collect()
    asked, now = draw_sample(decisions, 60, seed=1), datetime.now(UTC)
    rules, counted = instance.rules.as_rules(), counted_as(instance)
    sample = as_sample(asked, seed=1, drawn_at=now, window=WINDOW, rules=rules, counted=counted)
    stored = json.loads(sample["rules"][0]) | {"exclude_users": ["y", "x"]}
    stored.pop("exclude_user_assets")  # by a version that had no such setting
    answered = sample.with_columns(
        right=pl.col("username").str.starts_with("s"), rules=pl.lit(json.dumps(stored)), answered_at=now
    )
    tables.write("audit_sample", answered, run_id=RUN, publish=True)
    is_sure = decisions.filter(
        answers_of_audits(instance, tables, WINDOW)["confidence"] > 0.8, action="write"
    )
    assert set(is_sure["username"]) == {f"s{n}" for n in range(40)}
    longer = Window(WINDOW.first + timedelta(days=40), WINDOW.last + timedelta(days=41))
    assert answers_of_audits(instance, tables, longer)
    with too_few:
        answers_of_audits(instance, tables, Window(WINDOW.first + timedelta(days=1), WINDOW.last))
    for changed in (
        {"rules": instance.rules.model_copy(update={"evidence_metric": "days"})},
        {"query": "event.code: 4624"},
    ):
        with too_few:
            answers_of_audits(instance.model_copy(update=changed), tables, WINDOW)


def test_what_was_answered_no_stays_so_when_other_rules_are_audited(tune, home_with, tmp_path):
    tables = home_with()
    assert tune("--audit", "40", "--audit-file", tmp_path / "first.csv")[0] == 0
    sample = tables.read("audit_sample").collect()
    others = sample.with_row_index().with_columns(
        right=pl.when(pl.col("index") < 20).then(pl.col("index") >= 4),
        rules=pl.lit(Rules(min_events=2).as_json()),
    )
    tables.write("audit_sample", others.drop("index"), run_id=RUN, publish=True)
    assert tune("--audit", "40", "--audit-file", tmp_path / "second.csv", "--seed", "9")[0] == 0
    stored = tables.read("audit_sample").collect()
    drawn = stored.tail(40)
    assert drawn["is_asked_twice"].sum() == 5, "those that an earlier sheet asks twice included"
    assert set(drawn["seed"]) == {9, sample["seed"][0]}, "who was on a sheet stays there"
    assert drawn["right"].null_count() == 40
    assert set(sample["host_id"][:4]) == set(stored.filter(right=False)["host_id"])


def test_a_later_draw_with_the_same_seed_leaves_the_sheet_of_the_first_valid(tune, home_with, tmp_path):
    tables = home_with()
    for number, name in ((50, "50.csv"), (50, "again.csv"), (5, "5.csv")):
        assert tune("--audit", str(number), "--seed", "7", "--audit-file", tmp_path / name)[0] == 0
    assert (tmp_path / "again.csv").read_text() == (tmp_path / "50.csv").read_text()
    with dagster_instance(tmp_path / "home") as dagster:
        event: Any = dagster.get_latest_materialization_event(dg.AssetKey(["head_office", "audit_sample"]))
    assert event.asset_materialization.metadata["dagster/row_count"].value == 50, "its page has the last draw"
    drawn = [
        {row["host_id"] for row in json.loads(tune("--audit", number, "--seed", "7", "--json")[1])["sample"]}
        for number in ("5", "50", "60")
    ]
    assert [len(hosts) for hosts in drawn] == [5, 50, 60]
    assert drawn[0] < drawn[1] < drawn[2], "a smaller number is the beginning of a greater one"
    for name in ("50.csv", "5.csv"):
        fill_in(tmp_path / name)
        status, _, said = tune("--audit-answers", tmp_path / name)
        assert status == 0, said
    assert tables.read("audit_sample").collect()["right"].sum() == 50
    assert tune("--audit", "50", "--seed", "7", "--audit-file", tmp_path / "answered.csv")[0] == 0
    sheets = [(tmp_path / name).read_text().splitlines() for name in ("again.csv", "answered.csv")]
    assert sorted(sheets[0]) == sorted(sheets[1])


def test_answers_about_owners_who_are_not_planned_any_more_count_with_those_of_a_further_audit(
    tune, home_with, tmp_path
):
    tables, sheet = home_with(), tmp_path / "a.csv"
    assert tune("--audit", "60", "--audit-file", tmp_path / "first.csv")[0] == 0
    sample = tables.read("audit_sample").collect()
    sample = sample.with_columns(right=pl.col("user_id") != sample["user_id"][0])
    tables.write("audit_sample", sample, run_id=RUN, publish=True)
    decisions = tables.read_own("owner_decisions", RUN)
    is_asked = pl.col("host_id").is_in(sample["host_id"].implode())
    left = decisions.with_columns(action=pl.when(is_asked).then(pl.lit("none")).otherwise("action"))
    tables.write("owner_decisions", left, run_id=RUN, publish=True)
    assert tune("--audit", "10", "--audit-file", sheet)[0] == 0
    fill_in(sheet)
    status, printed, said = tune("--audit-answers", sheet)
    assert status == 0, said
    assert ": 70 of 70 owners are answered" in printed
    assert "Of the 70 planned owners about" in printed


def test_an_audit_of_a_running_service_is_drawn_from_what_was_written_since_the_last_one(
    tune, home_with, tmp_path, monkeypatch
):
    tables = home_with()
    assert tune("--audit", "40", "--audit-file", tmp_path / "first.csv")[0] == 0
    status, _, said = tune("--audit", "5", "--written")
    assert (status, "no host has an owner that a run wrote" in said) == (1, True)
    now = datetime.now(UTC)
    written = [f"s{n}" for n in range(12)]
    for run_id, part in (("part-1", written[:7]), ("part-2", [*written[7:], "s30"])):  # of one plan
        row = tables.rows("runs", RUN).with_columns(run_id=pl.lit(run_id), of_run=pl.lit(RUN))
        tables.append("runs", row, run_id=run_id)
        fields = {"outcome": "written", "run_id": run_id, "intended_at": now, "completed_at": now}
        store_writes(tables, pl.concat(plan(one, new=values(one), **fields) for one in part), run_id=run_id)
    later = dict.fromkeys(("intended_at", "completed_at"), now + timedelta(seconds=1))
    again = plan("s30", old=values("s30"), new=values(""), outcome="undone", undoes="part-2", **later)
    store_writes(tables, again.with_columns(run_id=pl.lit("undo")), run_id="undo")
    tables.store_current_owners(run_id=RUN)
    status, printed, _ = tune("--audit", "5", "--written", "--audit-file", tmp_path / "second.csv")
    assert (status, "5 of 12 owners written since the last draw" in printed) == (0, True)
    assert set(tables.read("audit_sample").tail(5).collect()["host_id"]) < set(written)
    status, printed, _ = tune("--audit", "50", "--written", "--audit-file", tmp_path / "third.csv")
    assert status == 0
    assert " 12 owners written, drawn" in printed
    assert "Not 50: there are no more." in printed
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    printed = tune("--audit", "1", "--written", "--seed", "5")[1]
    assert ("Wrote audit-5.xlsx: 1 of 12" in printed, (tmp_path / "audit-5.xlsx").exists()) == (True, True)
    assert "with --seed 5 writes this sheet again" in printed
    assert "Wrote audit-5-2.xlsx: 1 of 12" in tune("--audit", "1", "--written", "--seed", "5")[1]
    for file in ("first.csv", "second.csv", "third.csv"):  # each draw leaves the sheets before it valid
        fill_in(tmp_path / file)
        status, printed, said = tune("--audit-answers", tmp_path / file)
        assert status == 0, said
        [rows] = re.findall(r"(\d+) owners are answered", printed)
    assert f": {rows} of {rows} owners are answered, {rows} of them right" in printed
    status, _, said = tune("--audit", "5", "--written")
    assert (status, "Nothing to draw: each owner written has an answer" in said) == (1, True)


def test_options_of_an_audit_that_do_not_fit_are_errors(tune, home_with, tmp_path):
    home_with()
    (tmp_path / "there.csv").write_text("answers", encoding="utf-8")
    for options in (
        *("--seed 7", "--written", "--audit-file new.csv", "--audit 5 --audit-answers there.csv"),
        *("--audit 5 --audit-file there.csv", "--audit-answers there.csv", "--audit-answers missing.csv"),
    ):
        assert tune(*options.split())[0] == 2, options
    assert (tmp_path / "there.csv").read_text(encoding="utf-8") == "answers"


def test_owners_that_another_instance_wrote_to_the_inventory_are_not_set_by_hand(
    tune, instance_file, home_with, tmp_path
):
    tables, other = home_with(by_hand=36), Tables(tmp_path / "home", "branch", name="Branch")
    other.prepare()
    fields = {"outcome": "written", "completed_at": NOW, "target": load_instance(instance_file).target}
    rows = [plan(f"s{n}", new=values(f"s{n}"), **fields) for n in range(36)]
    other.append("owner_writes", pl.concat(rows), run_id=RUN)
    assert tune()[0] == 0
    people = tables.read("accuracy").filter(measure="people", by="all").collect()
    assert people["hosts"].to_list() == [26]
