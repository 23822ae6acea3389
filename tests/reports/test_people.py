from dataclasses import replace
from functools import partial

import pytest

from ownership.declaration import empty
from ownership.history import current_owners
from ownership.matching import FieldNames
from ownership.persons import Person, Persons
from ownership.rules import Rules
from ownership.tables import TABLES, OwnerWrites
from reports.sentences import (
    SHOWN_ELSEWHERE,
    each_person,
    near_names,
    person_explanation,
    person_in_words,
)
from reports.story import told_hosts
from tests.ownership.builders import counts, host, hosts, resolution, table, user, users

PEOPLE = users(
    user("u1", email="Ann@corp.example", sam="akeller"),
    user("u2", email="bob@corp.example"),
    user("u3", surname="kim"),
    user("u4", surname="kim"),
    user("u6", email="dee.olu@corp.example"),
    user("u5", surname="odd") | {"user_email": None, "problem": "its field user_email holds a dict"},
)


LOGONS = counts(("ws1", "ann", 3), ("ws2", "akeller", 2), ("ws2", "kim", 3), ("ws3", "odd", 1))
MADE = resolution(LOGONS, PEOPLE, hosts())


@pytest.mark.parametrize("asked", ["zoe@corp.example", "u9", "zoe"])
def test_a_person_who_is_excluded_is_found_with_the_hosts_and_what_excludes_them(asked):
    people = users(user("u9", email="zoe@corp.example", listed_values=["left: true"]))
    rules = Rules(exclude_user_assets={"left": ("true",)})
    made = resolution(counts(("ws1", "zoe", 3)), people, hosts(host("h1", "ws1")), rules)
    tables = {
        "owner_decisions": made.decisions,
        "host_user_shares": made.shares,
        "current_owners": current_owners(hosts(host("h1", "ws1")), people, table(OwnerWrites).lazy()),
        "inventory_users": people,
        "username_matches": made.matches,
    }
    found = Persons(rules, tables.items()).find(asked)
    text = told(asked, found, tables, rules)
    assert "(u9), in the logons zoe, excluded (exclude_user_assets: left: true).\n" in text
    assert "Hosts: 1 by the logons, 0 in the inventory\n  - no owner, user excluded: ws1 has no" in text


def text_of(usernames, user_ids, logons, assets, *writes):
    made = resolution(logons, PEOPLE, assets)
    tables = {
        "owner_decisions": made.decisions,
        "host_user_shares": made.shares,
        "current_owners": current_owners(assets, PEOPLE, table(OwnerWrites, *writes).lazy()),
        "inventory_users": PEOPLE,
        "username_matches": made.matches,
    }
    found = [Person(one, {}, usernames) for one in user_ids or [None]]
    return told("asked", found, tables, Rules(), *writes)


def told(asked, found, tables, rules, *writes):
    def read(name):
        return tables.get(name, empty(TABLES[name])).lazy()

    tell = partial(
        told_hosts, read=read, writes=table(OwnerWrites, *writes).lazy(), rules=rules, fields=FieldNames()
    )
    return person_in_words(person_explanation(asked, found, read, tell))


def test_people_who_share_a_name_are_told_of_one_by_one():
    ann, kim = Person("u1", {"ann": "ann"}, ["kim", "CORP\\kim"]), Person("u3", {}, ["kim"])
    assert each_person([ann, kim], MADE.matches["username"]) == [
        [replace(ann, shared=())],
        [Person("u3", {})],
        [Person(None, {}, ["kim"])],  # one of them, or somebody else
    ]
    assert text_of(["kim"], [], LOGONS, hosts()).startswith("kim (several user assets: u3 or u4).")
    assert text_of(["x"], ["u9"], counts(("ws1", "x", 1)), hosts()).startswith(
        "x (an account without a person)."
    )


def test_who_is_not_known_is_asked_about_those_with_names_like_it():
    known = ["pc-1", "srv", "anna.jones@corp.example", "tom@corp.example"]
    assert near_names("pc-11", known) == ["pc-1"]
    assert near_names("Jones, Anna", known) == ["anna.jones@corp.example"]
    assert near_names("zzz", known) == []


def test_of_people_who_share_a_name_each_host_says_whose_it_is():
    text = text_of(["kim"], ["u3", "u4"], LOGONS, hosts(host("h1", "ws1", owners=("u4",))))
    lines = text.splitlines()
    assert lines[0] == "This may be several people: kim (u3) or kim (u4), in the logons kim."
    assert (
        "  - conflict, only one user: ws1 belongs to kim (u4) in the inventory, but the logons name " in text
    )
    assert lines[-1] == "  ws2  kim: 3 of 5 logons on 1 day  last on 2026-03-02"


def test_of_many_hosts_the_first_are_shown_and_names_do_not_act_on_a_terminal():
    rows = [(f"ws{number}\x1b[2j", name, 1) for number in range(30) for name in ("ann", "bob")]
    text = text_of(["ann"], ["u1"], counts(*rows), hosts(host("h1\x07", "ws1\x1b[2j", owners=("u1",))))
    assert text.count("ann: 1 of 2 logons on 1 day") == SHOWN_ELSEWHERE
    assert "Hosts: 0 by the logons, 1 in the inventory\n" in text
    assert "Other hosts with logons: 30\n" in text
    assert text.endswith("  and more; --json has all")
    assert all(line.isprintable() for line in text.splitlines())
