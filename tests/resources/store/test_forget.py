"""Forgetting a person: whole values of one person go, everything else stays."""

import json
import random
import re

import polars as pl
import pytest

from ownership.declaration import PersonalData, personal_columns, polars_schema
from ownership.matching import unmatched_users
from ownership.names import is_stand_in, joined_ids, split_ids
from ownership.persons import Person, Persons
from ownership.rules import Rules
from ownership.tables import TABLES, LogonCounts
from resources.store.forget import Forgetting
from tests.ownership import builders
from tests.ownership.builders import DAY, counts, host, hosts, resolution, table, user, users

PEOPLE = {
    "17": "max",
    "4711": "max.weber",
    "171": "josé",
    "u1": "null",
    "u11": "ann$",
    "a-1": "eva",
    "a-11": "lee-",
    "CN=Ned,17": "ned",
}
"""Ids and accounts, of which one is the beginning or the end of another."""


def spelled(account):
    return f"CORP\\{account.title()}"


def values_of(holds, person, other):
    """What a column holds of a person, and of somebody else beside them where it holds several."""
    (user_id, account), (other_id, other_account) = person, other
    return {
        PersonalData.NOTHING: f"of {len(account)}",
        PersonalData.USER_ID: [user_id, other_id],
        PersonalData.JOINED_USER_IDS: joined_ids([user_id, other_id]),
        PersonalData.ACCOUNT: account,
        PersonalData.SPELLING: [spelled(account), spelled(other_account)],
        PersonalData.STARTER: f"user {spelled(account)}",
        PersonalData.WORDS: "12 of 17 hosts, max. 17; null",
        PersonalData.SETTINGS: json.dumps(
            {"exclude_users": [spelled(account), "*$"], "max": None, "null": [17]}
        ),
    }[holds]


def row_of(model, person, other):
    held, row = personal_columns(model), {}
    for name, kind in polars_schema(model).items():
        value = values_of(held[name], person, other) if name in held else None
        if isinstance(kind, pl.Struct):
            owner = value[0] if isinstance(value, list) else value
            value = {"owner": owner, "department": "max", "criticality": "17"}
        elif isinstance(kind, pl.List):
            value = value if isinstance(value, list) else [value]
        elif isinstance(value, list):
            value = value[0]
        row[name] = value
    # One id is listed for a name; its owners and addresses say of each other only where there is one.
    row |= {"candidate_ids": [person[0]]} if "candidate_ids" in row else {}
    row |= {"setting": "rules.exclude_users"} if "setting" in row else {}
    row |= {"decisive": True} if "decisive" in row else {}
    row |= {"day": DAY, "events": 1} if model is LogonCounts else {}
    return row


def everything():
    """Rows of every table, each about one person, and about others beside."""
    rng, people = random.Random(7), list(PEOPLE.items())  # noqa: S311  (the same each time)
    made = {}
    for name, model in TABLES.items():
        pairs = [(person, rng.choice([other for other in people if other != person])) for person in people]
        made[name] = table(model, *(row_of(model, *pair) for pair in pairs))
    fields = {"email": None, "sam": None}
    made["inventory_users"] = users(
        *(user(user_id, **fields | {"sam": spelled(account)}) for user_id, account in people)
    )
    return made


def known(tables, rules=None):
    return Persons(rules or Rules(), tables.items())


def forgetting(tables, asked, rules=None, before=None):
    [person] = known(tables, rules).find(asked)
    return Forgetting.of_person(asked, person, rules=rules or Rules(), before=before)


@pytest.mark.parametrize("asked", [*PEOPLE, *PEOPLE.values()])
def test_one_person_goes_from_every_table_and_nobody_else_changes(asked):
    tables = everything()
    gone = forgetting(tables, asked)
    [(user_id, account)] = [one for one in PEOPLE.items() if asked in one]
    theirs = {user_id, account, spelled(account)}
    assert (set(gone.ids), set(gone.names)) == ({user_id}, {account, spelled(account)})
    for name, before in tables.items():
        after = gone.in_rows(name, before)
        if name == "inventory_users":
            assert after.equals(before.filter(pl.col("user_id") != user_id))
            continue
        words = {PersonalData.WORDS, PersonalData.SETTINGS}
        held = personal_columns(TABLES[name])
        named = {column for column, holds in held.items() if holds not in {PersonalData.NOTHING, *words}}
        for old, new in zip(before.to_dicts(), after.to_dicts(), strict=True):
            changed = {column for column in old if new[column] != old[column]}
            about = {column for column in named if theirs & parts_of(old[column], held[column])}
            assert changed & named == about
            assert all(held[column] in words for column in changed - named), name
            assert not about or not any(new[column] for column in held if held[column] is PersonalData.WORDS)
            assert about or not changed, "somebody else's row"
            for column in about:
                was, now = (parts_of(row[column], held[column]) for row in (old, new))
                assert was - theirs <= now
                assert now - was
                assert not theirs & now


def parts_of(value, holds):
    if isinstance(value, dict):
        value = value["owner"]
    if isinstance(value, list) or value is None:
        return {*(value or ())}
    return (
        {*pl.select(split_ids(pl.lit(value))).item()}
        if holds is PersonalData.JOINED_USER_IDS
        else {value.removeprefix("user ")}
    )


def test_two_who_are_forgotten_stay_two():
    tables = everything()
    for asked in ("max", "eva"):
        gone = forgetting(tables, asked)
        tables = {name: gone.in_rows(name, rows) for name, rows in tables.items()}
    decided = tables["owner_decisions"]
    for name in ("username", "resolved_owner"):
        assert decided[name].n_unique() == len(PEOPLE)
        assert decided.filter(is_stand_in(pl.col(name))).height == 2
    assert known(tables).find(decided["username"][0]) == [], "a stand-in is nobody"


def found(asked, *, rules=None, **tables):
    collected = {name: rows.lazy().collect() for name, rows in tables.items()}
    return {one.user_id or min(one.names): {*one.names} for one in known(collected, rules).find(asked)}


LEES = users(user("u1", email="lee@a.example"), user("u2", email="lee@b.example", sam="lee"))
SPELLED = counts(("pc", "A\\lee", 1), ("pc", "lee@a.example", 1), ("pc", "ann", 1))


def test_a_name_of_two_people_names_both_and_what_only_one_has_is_theirs():
    stored = {"inventory_users": LEES, "logon_counts": SPELLED}
    assert found("lee", **stored).keys() == found("A\\Lee", **stored).keys() == {"u1", "u2"}
    assert found("u1", **stored) == found("LEE@a.example", **stored) == {"u1": {"lee@a.example"}}
    assert found("ann", **stored) == found("CORP\\ann", **stored) == {"ann": {"ann"}}
    assert found("ann@elsewhere.example", **stored) == found("lee@c.example", **stored) == {}
    assert found("le", **stored) == found("lee@c.example", inventory_users=LEES[:0]) == {}


def test_accounts_of_other_domains_and_of_a_computer_are_other_people():
    logons = counts(*(("pc", name, 1) for name in ("CORP\\max", "OTHER\\max", "PC\\max", r"PC\\max")))
    stored = {"inventory_users": users(user("u1", sam="max")), "logon_counts": logons}
    both = {"u1": {"max", "CORP\\max", "OTHER\\max"}}
    assert found("max", **stored) == both
    for asked in ("pc\\max", r"pc\\max"):
        assert [*found(asked, **stored).values()] == [{"PC\\max", r"PC\\max"}]
    both["u1"].remove("OTHER\\max")
    assert found("max", rules=Rules(domains=("corp",)), **stored) == both


@pytest.mark.parametrize("name", ["owner_decisions_history", "audit_sample", "unmatched_users"])
def test_who_is_in_neither_service_any_more_is_known_from_what_is_stored(name):
    row = row_of(TABLES[name], ("u1", "ann"), ("u2", "bob"))
    for asked in ("u1", "ann"):
        [person] = known({name: table(TABLES[name], row)}).find(asked)
        assert (person.user_id, "ann" in person.names) == ("u1", True)


def gone(user_id, *names):
    return Forgetting.of_person(
        names[0], Person(user_id, {name: name.lower() for name in names}), rules=Rules()
    )


def test_settings_stay_json_and_lose_a_name_and_nothing_else():
    users = ("null", "Null*", "josé", r"CORP\\eva")
    by_field = {"mail": ("CORP\\eva", "x*")}
    rules = Rules(exclude_users=users, exclude_user_assets=by_field, evidence_metric="events")
    row = {"run_id": "r", "rules": rules.as_json(), "options": '{"reason": "for null", "limit": null}'}
    stored = table(TABLES["runs"], row | {"by": "null"})
    people = [gone(None, name) for name in ("null", "josé", "Corp\\Eva")]
    for person in (*people, gone("events", "events")):
        [after] = person.in_rows("runs", stored).to_dicts()
        left = Rules.from_json(after["rules"])
        assert left.evidence_metric == "events"
        assert left.exclude_users[1] == "Null*"
        assert left.exclude_user_assets == by_field
        assert sum(name.startswith("forgotten-") for name in left.exclude_users) == (
            "events" not in person.ids
        )
        options = {"limit": None} if left != rules else {"reason": "for null", "limit": None}
        assert json.loads(after["options"]) == options


def test_who_started_a_run_is_found_and_a_schedule_is_nobody():
    starters = ["user max", "schedule max", "schedule eva"]
    rows = [{"run_id": by, "options": "{}", "by": by} for by in starters]
    stored = table(TABLES["runs"], *rows)
    first, *schedules = forgetting({"runs": stored}, "max").in_rows("runs", stored)["by"]
    assert first.startswith("user forgotten-")
    assert schedules == starters[1:]
    assert found("eva", runs=stored) == found(first, runs=stored) == {}


def test_a_setting_that_was_tried_and_what_says_so_lose_a_name():
    tried = "rules.exclude_users=[max, kim]"
    row = {"run_id": "r", "rules": Rules().as_json(), "by": "kim", "message": f"Tried: {tried}"}
    stored = table(TABLES["runs"], row | {"options": json.dumps({"set": [tried]})})
    [after] = gone(None, "max").in_rows("runs", stored).to_dicts()
    [setting] = json.loads(after["options"])["set"]
    assert re.fullmatch(r'rules.exclude_users=\["forgotten-[0-9a-f]{16}", "kim"\]', setting)
    assert after["message"] is None
    assert gone(None, "ma").in_rows("runs", stored).equals(stored)


def test_logons_of_two_spellings_are_one_and_those_of_an_excluded_person_go():
    """Otherwise they would count as those of another user, and change what is decided about others."""
    logons = counts(("pc", "CORP\\max", 2), ("pc", "max", 3), ("pc", "eva", 4)).collect()
    for rules, left in ((Rules(), [5, 4]), (Rules(exclude_users=("m?x",)), [4])):
        after = forgetting({"logon_counts": logons}, "max", rules).in_rows("logon_counts", logons)
        assert after["events"].to_list() == left


def test_what_was_begun_is_about_an_id_as_it_is_spelled_and_a_name_in_any_case():
    begun = Forgetting.of_person("u1x", Person("u1x", {"Ann": "ann"}), rules=Rules())
    assert [begun.is_about(asked) for asked in ("u1x", "ANN", "U1X", "bob")] == [True, True, False, False]


def test_what_was_begun_goes_on_with_the_same_stand_ins():
    tables = everything()
    begun = forgetting(tables, "max")
    tables = {name: rows for name, rows in tables.items() if name == "owner_writes"}
    again = forgetting(tables, "17", before=begun)
    assert again == begun
    assert begun.is_about("CORP\\MAX")
    assert not begun.is_about("max.weber")


def test_a_stand_in_is_counted_and_names_nobody():
    """Without its logons another user would have more than the threshold; no user asset is waited for."""
    logons = counts(("pc", "forgotten-0123456789abcdef", 6), ("pc", "ann", 4))
    run = resolution(logons, builders.PEOPLE, hosts(host("h1", "pc")))
    [decided] = run.decisions.select("evidence", "match", "action").rows()
    assert decided == ("no_majority", None, "none")
    assert unmatched_users(run.shares, run.matches, run.decisions).is_empty()
