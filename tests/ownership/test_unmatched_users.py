from ownership.declaration import validated
from ownership.matching import unmatched_users
from ownership.tables import UnmatchedUsers
from tests.ownership.builders import counts, host, hosts, resolution, user, users

PEOPLE = users(user("u1", "ann@corp.example"), user("u4", surname="Kim"), user("u5", surname="kim"))
LOGONS = counts(("kims", "kim", 7), ("kims too", "kim", 1), ("guests", "eve", 3), ("ws", "ann", 9))
ASSETS = hosts(host("h-kims", "kims"), host("h-too", "kims too", owners=("u4",)), host("h-guests", "guests"))


def unmatched(people, assets=ASSETS, logons=LOGONS):
    made = resolution(logons, people, assets)
    found = unmatched_users(made.shares, made.matches, made.decisions)
    return validated(UnmatchedUsers, found).drop("first_seen", "last_seen").rows()


def test_unmatched_are_the_users_without_exactly_one_user_asset_with_the_hosts_that_wait_for_them():
    assert unmatched(PEOPLE) == [("kim", 2, ["u4", "u5"], 2, 2, 1, 8), ("eve", 0, [], 1, 1, 1, 3)]


def test_so_is_one_whose_only_user_asset_cannot_be_read():
    people = users(user("u1", "ann@corp.example") | {"problem": "its field user_department holds a dict"})
    assets, logons = hosts(host("h1", "ws")), counts(("ws", "ann", 3))
    assert unmatched(people, assets, logons) == [("ann", 1, ["u1"], 1, 1, 1, 3)]
