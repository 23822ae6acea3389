"""`asset-owners explain` on the tables of an earlier run."""

import json

import polars as pl
import pytest

from resources.store.tables import Tables
from sandbox.stored_run import store_run
from tests.ownership.builders import NOW, PEOPLE, RUN, host, hosts, resolution, user
from tests.ownership.builders import users as users_of
from tests.pipelines.conftest import LOGONS


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        ("PC-ONE", ("Logon events on pc-1.corp.example, pc-one, 6 in all", "Written, 2026-03-30 12:00 UTC")),
        ("pc-1.corp.example", ("Logon events on pc-1.corp.example, pc-one, 6 in all", "owner u1")),
        ("h1", ("Host asset h1, window 2026-03-01 to 2026-03-30",)),
        (
            "pc-2",
            ("user u2: user_email bob@corp.example", "Clear asset_owner of host h2: the next run would"),
        ),
        ("pc-3", ("ann (u1) needs 1 more logon to become", "carol needs 6 more logons and must have a")),
        ("=CMD()", ("By directory_user_surname, kim may be any of u3, u4; none is chosen.",)),
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


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", [".corp.example", "-"])
def test_a_name_of_which_nothing_is_left_means_no_host(call, stored, name):
    status, told, _ = call("explain", "--instance", stored, "--json", "--", name)
    assert status == 1
    found = json.loads(told)
    assert (found["similar"], found["decisions"]) == ([], [])


def test_an_unknown_host_has_no_decisions(call, stored):
    status, told, _ = call("explain", "--instance", stored, "nowhere", "--json")
    assert status == 1
    assert json.loads(told) == {"hostname": "nowhere", "similar": [], "near": [], "decisions": []}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("pc-1", " They know pc-1.corp.example."),
        ("pc-33", " Did you mean pc-3?"),
        ("h11", " Did you mean h1?"),
        ("nowhere", ""),
    ],
)
def test_what_is_unknown_ends_with_1_and_names_that_are_near(call, stored, name, told):
    status, out, _ = call("explain", "--instance", stored, name)
    assert status == 1
    assert out == f"{name}: neither the inventory nor the logons know such a host or person.{told}\n"


@pytest.mark.parametrize("asked", ["", " "])
def test_who_asks_for_nothing_is_told_what_to_ask_for(call, stored, asked):
    status, _, said = call("explain", "--instance", stored, asked)
    assert status == 2
    assert said == (
        "asset-owners: HOST_OR_PERSON: it is empty; name a host, or a person by user name, e-mail address or "
        "id\n"
    )


@pytest.mark.parametrize("asked", ["Amir Ricci", "ricci, amir", "Amir", "RICCI", "ami ric"])
def test_people_are_suggested_whose_names_or_addresses_hold_the_words(call, stored, asked):
    tables = Tables(stored.parent / "home", "head_office")
    users = tables.read("inventory_users").collect()
    others = users_of(
        user("u7", email="amir.ricci@corp.example"), user("u8", sam="aricci", surname="Ricci-Amiri")
    )
    tables.write("inventory_users", pl.concat([users, others]), run_id=RUN, publish=True)
    status, told, _ = call("explain", "--instance", stored, asked)
    assert status == 1
    assert told.endswith("such a host or person. Did you mean amir.ricci@corp.example or u8?\n")
    assert call("explain", "--instance", stored, "amir.ricci@corp.example")[0] == 0
    assert call("explain", "--instance", stored, "u8")[0] == 0


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


def test_a_name_of_several_people_is_told_of_all_and_one_without_asset_as_such(call, stored):
    told = call("explain", "--instance", stored, "kim")[1]
    assert told.startswith("Several people may be meant: kim (u3) or kim (u4), in the logons kim.\n")
    told = call("explain", "--instance", stored, "carol")[1]
    assert told.startswith("carol (no user asset).\n")
    assert "  pc-3  4 of 10 logons on 1 day" in told


def test_a_host_comes_before_a_person_of_the_same_name(call, stored):
    tables = Tables(stored.parent / "home", "head_office")
    users = tables.read("inventory_users").collect()
    tables.write("inventory_users", users.with_columns(
        user_id=pl.col("user_id").replace("u2", "pc-2")), run_id=RUN, publish=True)  # fmt: skip
    status, told, noted = call("explain", "--instance", stored, "pc-2")
    assert status == 0
    assert told.startswith("pc-2 belongs to ")
    assert "pc-2 is a person, too" in noted


def test_a_host_without_a_name_is_found_by_its_id(call, stored):
    tables = Tables(stored.parent / "home", "head_office")
    assets = hosts(
        host("n1"), host("n2", ""), host("N3", "-"), host("n4") | {"hostnames": None, "problem": "x"}
    )
    made = resolution(LOGONS, PEOPLE, assets)
    store_run(tables, made, run_id="run-2", decided_at=NOW, hosts=assets, users=PEOPLE)
    for host_id in ("n1", "n2", "N3", "n4", "n3", "N1"):
        status, told, _ = call("explain", "--instance", stored, host_id)
        assert status == 0, host_id
        assert told.lower().startswith(
            f"{host_id.lower()} has no owner: the host asset has no host name."
        ) or ("cannot be read" in told)


def test_a_run_that_decided_nothing_is_refused_without_a_word_on_what_others_decided(call, stored):
    tables = Tables(stored.parent / "home", "head_office")
    rows = tables.writes().collect().with_columns(run_id=pl.lit("undo-run"), outcome=pl.lit("undone"))
    tables.append("owner_writes", rows, run_id="undo-run")
    status, _, said = call("explain", "--instance", stored, "pc-2", "--run", "undo-run")
    assert status == 2
    assert said.startswith("asset-owners: RUN_ID: run undo-run decided nothing, such as an undo, or its")
    assert len(said.splitlines()) == 1
    _, told, said = call("sql", "--instance", stored, "--run", "undo-run", "SELECT run_id FROM write_history")
    assert "undo-run" in told
    assert "only what it wrote or planned is shown; all else is as the last run left it." in said


@pytest.mark.parametrize("name", ["svc_sql", r"CORP\SVC_SQL", "svc_sql@corp.example"])
def test_a_user_who_is_left_out_is_known_as_such(call, stored, name):
    text = stored.read_text(encoding="utf-8")
    stored.write_text(f"{text}\nrules: {{exclude_users: ['*$', 'svc_*']}}\n", encoding="utf-8")
    status, told, _ = call("explain", "--instance", stored, name)
    assert status == 1
    assert "rules.exclude_users (svc_*) leaves user names like this out: their logons do not count." in told
