"""The main job on the demo company, whose every outcome is known."""

import re
import subprocess
from collections import Counter
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from ownership.decisions import funnel
from reports.page import FUNNEL
from sandbox.company import DEMO_RULES
from tests.end_to_end.stand import ASSET_OWNERS, COMPANY_INDEX, TODAY

pytestmark = pytest.mark.slow

SETTINGS = {"index": COMPANY_INDEX, "rules": DEMO_RULES, "scan": {"lookback_days": 30}}


@pytest.fixture(scope="module")
def stand(company, engine, open_stand, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        stand = open_stand(tmp_path_factory.mktemp("company"), patch, engine)
        stand.begin(company.hosts, company.users)
        yield stand


@pytest.fixture(scope="module")
def first(stand):
    """The run on an empty store."""
    ran = stand.run(SETTINGS)
    assert ran.status == 0, ran.stderr
    return ran


def decisions(stand, ran):
    return stand.tables.read_own("owner_decisions", ran.report["run_id"])


def test_every_decision_is_the_truth_and_exactly_the_missing_owners_are_written(company, stand, first):
    columns = ["host_id", "hostname", "evidence", "match", "action", "resolved_owner"]
    truth = pl.DataFrame([{name: getattr(row, name) for name in columns} for row in company.truth])
    by = ["host_id", "hostname"]
    assert decisions(stand, first).select(columns).sort(by).rows() == truth.sort(by).rows()

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
    assert stand.written() == expected
    assert {len(fields) for fields in expected.values()} == {1, 2, 3}, "not each owner has what is copied"
    state = stand.inventory.state
    assert state.assets("host") == [{**host, **expected.get(host["id"], {})} for host in company.hosts]
    assert state.assets("user") == company.users


def test_the_report_counts_decisions_writes_and_conflicts(company, first):
    actions = Counter(row.action for row in company.truth)
    assert first.report == {
        "run_id": first.report["run_id"],
        "instance": "Small",
        "window": {"from": str(TODAY - timedelta(days=29)), "to": str(TODAY), "days": 30},
        "decisions": Counter(f"{row.evidence}/{row.match or 'null'}/{row.action}" for row in company.truth),
        "writes": {"written": actions["write"]},
        "conflicts": actions["conflict"],
        "dry_run": False,
    }


def test_the_caption_of_the_picture_of_the_decisions_has_their_numbers(stand, first):
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (caption,) = re.findall(r"!\[Page of owner_decisions: (.+?)\]", text)
    stages = dict(funnel(decisions(stand, first)).select("stage", "hosts").iter_rows())
    names = (*FUNNEL, "to write", "agrees", "conflict")
    assert [int(number) for number in re.findall(r"\d+", caption)] == [stages[name] for name in names]


# What asset-owners sandbox demo says, and the commands that it proposes


@pytest.mark.nightly
def test_the_demo_plans_writes_and_counts_and_what_it_proposes_has_something_to_show(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "home"))

    def output(*command):
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)  # noqa: S603
        assert done.returncode == 0, done.stderr
        return done.stdout

    for variable, value in {"COLUMNS": "80", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(variable, value)
    on_terminal = output("script", "-qec", f"{ASSET_OWNERS} sandbox demo", "/dev/null")
    said = on_terminal.replace("\r\n", "\n")
    to_copy = re.compile(r"    \S*(less|asset-owners) |    ASSET_OWNERS_HOME=")
    assert [line for line in said.splitlines() if len(line) > 80 and not to_copy.match(line)] == []
    assert "Plan: 168 owners to write" in said
    assert "To apply it" not in said, "it does that itself"
    assert re.findall("--audit 50.*", said) == ["--audit 50 --written"]
    assert "156 of 168 written owners are right" in said
    wrong = said.partition("\nWrong, ")[2].partition("`explain`")[0]
    assert len(set(re.findall(r"lt-\d+", wrong))) == 12
    assert len(re.findall(r"\. lt-\d+\s+is\s+[\w\s]+'s, but\s+most\s+logons\s+are\s+[\w\s]+'s\n", wrong)) == 2
    proposed = re.findall(r"(?m)^    (ASSET_OWNERS_HOME=.*)$", said.partition("To look further:")[2])
    shown = {
        line: output("/bin/sh", "-c", line)
        for line in proposed
        if not line.endswith(("sandbox ui", "sandbox up", "init"))
    }
    assert [text for line, text in shown.items() if "explain" in line and "asset-owners wrote it" in text]
    assert [text for line, text in shown.items() if "tune" in line and "168 owners were written" in text]
    [draw] = [line for line in shown if "--audit" in line]
    for _ in range(2):
        assert "Then give the sheet back" in output("script", "-qec", draw, "/dev/null")
    assert len([*tmp_path.glob("audit-*.xlsx")]) == 2, "each draw has a file of its own"
    assert len(shown) == 5
