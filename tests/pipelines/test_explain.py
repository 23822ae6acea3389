"""`asset-owners explain` on the tables of an earlier run."""

import json

import polars as pl
import pytest

from resources.store.tables import Tables


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        (
            "PC-ONE",
            (
                "Logon events on pc-1.corp.example, pc-one, 6 in all",
                "2026-03-30 12:00 UTC, run run-1: The service has",
            ),
        ),
        ("pc-1.corp.example", ("Logon events on pc-1.corp.example, pc-one, 6 in all", "owner u1")),
        ("h1", ("Host asset h1, window 2026-03-01 to 2026-03-30",)),
        (
            "pc-2",
            ("user u2: user_email bob@corp.example", "Clear asset_owner of host h2: the next run would"),
        ),
        ("pc-3", ("ann (u1) needs 1 more logon to become", "carol needs 6 more logons and must have a")),
        ("=CMD()", ("(u3 or u4, by directory_user_surname)",)),
        (
            "pc-5",
            ("No host asset has this name", "There must be a host asset with pc-5 in search_agent_name."),
        ),
    ],
)
def test_a_host_is_found_by_any_name_or_id_and_its_story_told(call, stored, name, sentences):
    status, told, _ = call("explain", "--instance", stored, name)
    assert status == 0
    for sentence in sentences:
        assert sentence in told


def test_the_story_is_one_json_object_on_one_line(call, stored):
    status, told, _ = call("explain", "--instance", stored, "pc-3", "--json")
    assert status == 0
    (line,) = told.splitlines()
    found = json.loads(line)
    assert found["hostname"] == "pc-3"
    (decision,) = found["decisions"]
    assert (decision["host_id"], decision["action"], decision["window_to"]) == ("h3", "none", "2026-03-30")
    assert [(user["username"], user["events"]) for user in decision["users"]] == [("ann", 6), ("carol", 4)]
    assert decision["host_asset"]["hostnames"] == ["pc-3"]
    lacking = {change["username"]: change["events"] for change in decision["what_would_change"]}
    assert lacking["ann"] == 1


def test_an_unknown_host_has_no_decisions(call, stored):
    status, told, _ = call("explain", "--instance", stored, "nowhere", "--json")
    assert status == 1
    assert json.loads(told) == {"hostname": "nowhere", "similar": [], "near": [], "decisions": []}


@pytest.mark.parametrize("named", ["bob", "CORP\\Bob", "bob@corp.example", "u2", "U2"])
def test_a_person_is_found_by_user_name_by_address_and_by_id(call, stored, named):
    status, told, _ = call("explain", "--instance", stored, named)
    assert status == 0
    assert told.splitlines() == [
        "bob@corp.example (u2), not in the logons.",
        (
            "The logons name this person for 0 hosts; 1 host of the inventory belongs to this person; logons "
            "on other hosts: 0."
        ),
        "",
        "Theirs in the inventory:",
        "  pc-2 (h2)  department none  the logons name ann",
    ]


def test_a_person_is_told_with_the_hosts_of_the_logons_and_of_the_inventory(call, stored):
    told = call("explain", "--instance", stored, "ann")[1]
    assert told.splitlines()[0] == "ann@corp.example (u1), in the logons ann."
    flat = " ".join(told.split())
    assert "pc-2 (h2) 9 of 9 logons on 1 day last on 2026-03-02 The host has another" in flat
    assert "Other hosts with logons:\n  pc-3  6 of 10 logons on 1 day  last on 2026-03-02" in told
    assert (
        "Theirs in the inventory:\n  pc-1.corp.example (h1)  department Sales  the logons name them, too"
        in told
    )
    status, out, _ = call("explain", "--instance", stored, "ann", "--json")
    assert status == 0
    person = json.loads(out)["person"]
    assert (person["asked"], person["usernames"]) == ("ann", ["ann"])
    assert [user["user_id"] for user in person["user_assets"]] == ["u1"]
    assert [host["hostname"] for host in person["hosts_named"]] == ["pc-1.corp.example", "pc-2", "pc-5"]
    assert [host["hostname"] for host in person["hosts_elsewhere"]] == ["pc-3"]
    assert [host["host_id"] for host in person["hosts_owned"]] == ["h1"], "written since it was listed"


def test_a_run_that_decided_nothing_is_refused_without_a_word_on_what_others_decided(call, catalogued):
    tables = Tables(catalogued.parent / "home", "head_office")
    rows = tables.writes().collect().with_columns(run_id=pl.lit("undo-run"), outcome=pl.lit("undone"))
    tables.append("owner_writes", rows, run_id="undo-run")
    status, _, said = call("explain", "--instance", catalogued, "pc-2", "--run", "undo-run")
    assert status == 2
    assert said.startswith("asset-owners: RUN_ID: run undo-run decided nothing, such as an undo, or its")
    assert len(said.splitlines()) == 1
    _, told, said = call(
        "sql", "--instance", catalogued, "--run", "undo-run", "SELECT run_id FROM write_history"
    )
    assert "undo-run" in told
    assert "owner_decisions" in said, "what is not kept of it is named"


@pytest.mark.parametrize("name", ["svc_sql", r"CORP\SVC_SQL", "svc_sql@corp.example"])
def test_a_user_who_is_left_out_is_known_as_such(call, stored, name):
    text = stored.read_text(encoding="utf-8")
    stored.write_text(f"{text}\nrules: {{exclude_users: ['*$', 'svc_*']}}\n", encoding="utf-8")
    status, told, _ = call("explain", "--instance", stored, name)
    assert status == 1
    assert "rules.exclude_users (svc_*) leaves user names like this out: their logons do not count." in told
