import pytest

from ownership.rules import Rules
from ownership.shares import split_nameless
from tests.ownership.builders import counts, decide, host, hosts, shares_of, user, users


def test_spellings_are_kept_and_those_of_a_host_also_of_excluded_users():
    logons = counts(
        ("dc1.a", "CORP\\Alice", 1),
        ("dc1.a", "alice@corp.example", 2),
        ("dc1.a", "ALICE", 3),
        ("DC1.b", "svc", 3),
    )
    (row,) = shares_of(logons, Rules(hostname_match="short", exclude_users=("svc",))).rows(named=True)
    assert row["username_spellings"] == ["ALICE", "CORP\\Alice", "alice@corp.example"]
    assert row["hostname_spellings"] == ["DC1.b", "dc1.a"]


CUT = user("u1", email="christopher.montgomery@corp.example", sam="christopher.montgome")
DAN = user("u2", email="dan@corp.example", surname="Miller")


def found(logons, people, rules=None, assets=None):
    """What is decided about the first host: evidence, username, share, owner."""
    decisions = decide(counts(*logons), users(*people), hosts(*assets or [host("h1", "pc-local")]), rules)
    return decisions.select("evidence", "username", "share", "resolved_owner").row(0)


@pytest.mark.parametrize(
    "spelling",
    [
        r"PC-LOCAL\miller",
        r".\miller",
        r"NT SERVICE\miller",
        r"Virtual Users\miller",
        r"microsoftaccount\dan@x",
        r"pc-local\\miller",
        r"MicrosoftAccount\\dan@x",
    ],
)
def test_an_account_of_no_directory_is_a_user_of_its_own_and_stands_for_nobody(spelling):
    alone = found([("pc-local", spelling, 9)], [DAN])
    assert alone == ("single_user", spelling.lower().replace("\\\\", "\\"), 1.0, None)
    # Whatever it is called, it is not the person of the directory with that name.
    beside = found(
        [("PC-LOCAL.corp.example", spelling, 2), ("PC-LOCAL.corp.example", r"CORP\dan", 8)],
        [DAN],
        Rules(hostname_match="short"),
    )
    assert beside == ("majority", "dan", 0.8, "u2")


def test_windows_cuts_the_name_of_a_host_before_its_local_accounts():
    asset = host("h1", "laptop-0123456789.corp.example")
    logons = [("LAPTOP-0123456789.corp.example", r"LAPTOP-01234567\miller", 3)]
    assert found(logons, [DAN], assets=[asset])[1:] == (r"laptop-01234567\miller", 1.0, None)


@pytest.mark.parametrize(
    ("domains", "theirs"),
    [
        (("CORP", "corp.example"), r"CORP\dan, dan@Corp.Example, dan, CORP.OTHER\dan, dan@corp.b"),
        (("Corp",), r"CORP\dan, dan@Corp.Example, dan, CORP.OTHER\dan, dan@corp.b"),
        (("corp.example",), r"CORP\dan, dan@Corp.Example, dan"),
        (("b", "LAB.b"), r"LAB\dan, dan@b.lab, dan"),
    ],
)
def test_only_accounts_of_the_domains_that_are_named_stand_for_user_assets(domains, theirs):
    """Rules 1.3; a long domain is also known by its first label."""
    everybody = r"CORP\dan, dan@Corp.Example, dan, CORP.OTHER\dan, dan@corp.b, LAB\dan, dan@b.lab"
    for spelling in everybody.split(", "):
        owner = found([("pc-local", spelling, 1)], [DAN], Rules(domains=domains))[3]
        assert owner == ("u2" if spelling in theirs.split(", ") else None), spelling


def test_accounts_of_one_person_are_one_user_where_the_rules_say_so():
    logons = [("pc-local", "christopher.montgome", 5), ("pc-local", "christopher.montgomery@corp.example", 6)]
    assert found(logons, [CUT])[:2] == ("no_majority", "christopher.montgomery")
    assert found(logons, [CUT], Rules(unite_accounts=True)) == (
        "single_user",
        "christopher.montgomery",
        1.0,
        "u1",
    )


def test_accounts_that_several_people_may_have_stay_apart():
    other = user("u9", sam="christopher.montgomery")
    logons = [("pc-local", "christopher.montgome", 5), ("pc-local", "christopher.montgomery", 6)]
    assert found(logons, [CUT, other], Rules(unite_accounts=True))[0] == "no_majority"


def test_what_has_no_name_left_lacks_the_field():
    given = counts(("ws1", "CORP\\", 2), ("ws1", "@dan", 3), ("-", "dan", 4), ("ws1", "dan", 5)).collect()
    named, lacking_user, lacking_host = split_nameless(given)
    assert (named["document_username"].to_list(), lacking_user, lacking_host) == (["dan"], 5, 4)
