"""`asset-owners explain` on the tables of an earlier run."""

import json

import pytest


@pytest.mark.parametrize(
    ("host", "sentences"),
    [
        ("PC-ONE", ("Logon events on pc-1.corp.example, pc-one, 6 in all", "Written, 2026-03-30 12:00 UTC")),
        ("pc-1.corp.example", ("Logon events on pc-1.corp.example, pc-one, 6 in all", "owner u1")),
        ("h1", ("Host asset h1, window 2026-03-01 to 2026-03-30",)),
        (
            "pc-2",
            ("user u2: user_email bob@corp.example", "Clear asset_owner of host h2: the next run would"),
        ),
        ("pc-3", ("With 1 more logon event, ann would win", "carol would win, who has no user")),
        ("=CMD()", ("By directory_user_surname, kim may be any of u3, u4; none is chosen.",)),
        (
            "pc-5",
            ("No host asset has this name", "There must be a host asset with pc-5 in search_agent_name."),
        ),
        ("pc-1", ("pc-1: the last decisions know no such host", "They know pc-1.corp.example.")),
    ],
)
def test_a_host_is_found_by_any_name_or_id_and_its_story_told(call, stored, host, sentences):
    status, told, _ = call("explain", "--instance", stored, host)
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
@pytest.mark.parametrize("host", [".corp.example", "-", " "])
def test_a_name_of_which_nothing_is_left_means_no_host(call, stored, host):
    status, told, _ = call("explain", "--instance", stored, "--json", "--", host)
    assert status == 0
    found = json.loads(told)
    assert (found["similar"], found["decisions"]) == ([], [])


def test_an_unknown_host_has_no_decisions(call, stored):
    status, told, _ = call("explain", "--instance", stored, "nowhere", "--json")
    assert status == 0
    assert json.loads(told) == {"hostname": "nowhere", "similar": [], "decisions": []}
