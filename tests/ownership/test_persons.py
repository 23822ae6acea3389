"""Who is called this: the same for all who ask, by whatever tables they read."""

import pytest

from ownership.history import current_owners
from ownership.persons import Persons
from ownership.rules import Rules
from ownership.tables import OwnerWrites
from tests.ownership.builders import counts, host, hosts, resolution, table, user, users

STAND_IN = "forgotten-0123456789abcdef"
PEOPLE = users(
    user("u1", "Ann@corp.example", "akeller", surname="Keller"),
    user("u2", "dee.olu@corp.example"),
    user("u3", "lee@a.example"),
    user("u4", "lee@b.example", "lee"),
    user("u5", "jos\u00e9@corp.example"),
    user("17", sam="CORP\\17x"),
    user("max", sam="mweber"),
    user("U6", surname="moss"),
    user("u\x077", surname="odd") | {"problem": "its field user_email holds a dict"},
    user("u8", surname="zoe", listed_values=["left: true"]),
    user("u9", sam="zoe"),
)
LOGONS = counts(
    *(("ws1", name, 2) for name in ("CORP\\ann", "akeller", "zed@log.example", "moss", "odd", "zoe", "lee")),
    *(("ws2", name, 2) for name in ("svc_x", "ws2\\ann", "jose\u0301@corp.example", "OTHER\\eve", STAND_IN)),
)
ASSETS = hosts(host("h1", "ws1", owners=("Gone-1", f"{STAND_IN[:-1]}0")), host("h2", "ws2"))
RULES = Rules(domains=("corp", "corp.example", "log.example"), exclude_user_assets={"left": ("true",)})
MADE = resolution(LOGONS, PEOPLE, ASSETS, RULES)
SHOWN = {
    "inventory_hosts": ASSETS,
    "inventory_users": PEOPLE,
    "host_user_shares": MADE.shares,
    "username_matches": MADE.matches,
    "owner_decisions": MADE.decisions,
    "current_owners": current_owners(ASSETS, PEOPLE, table(OwnerWrites).lazy()),
}
"""What `explain` and audits read; `forget` reads all that is stored."""
WHO = {
    "u1": r"u1,U1, ann ,ANN,akeller,CORP\akeller,corp.example\Ann,corp\\ann,ANN@Corp.example,Ann Keller (u1)",
    "u2": r"u2,dee.olu,DEE.OLU@corp.example,corp\dee.olu,Dee Olu,dee  OLU",
    "u3": "u3,lee@a.example",
    "u4": "u4,LEE@b.example,lee@b.example (u4)",
    "u3 u4": r"lee,LEE,corp\lee",
    "u5": "u5,jos\u00e9,jose\u0301,JOSE\u0301@corp.example,jos\u00c9@corp.example",
    "17": r"17,17x,corp\17x",
    "max": "max,mweber",
    "U6": "u6,moss,moss (U6)",
    "u\x077": r"odd,u\x077",
    "u8": "u8",
    "u9": "u9,zoe",
    "Gone-1": "Gone-1,gone-1",
    "svc_x": r"svc_x,CORP\SVC_x",
    r"ws2\ann": r"ws2\ann,WS2\\Ann",
    r"other\eve": r"OTHER\eve",
    "zed": "zed,zed@log.example",
    "": r"ann@elsewhere.example,akeller@corp.example,zed@other.example,lee@c.example,OTHER\ann,eve,@,-,u, "
    rf",nobody,NT AUTHORITY\ann,Keller,{STAND_IN},{STAND_IN[:-1]}0,corp\,@corp.example,171,,"
    "Ann@corp.example (u2),Ann@corp.example (mweber)",
}


@pytest.mark.parametrize("stored", [SHOWN, SHOWN | {"logon_counts": LOGONS.collect()}], ids=["shown", "all"])
def test_the_same_words_name_the_same_persons_for_all_who_ask(stored):
    persons = Persons(RULES, stored.items())
    asked = {word: who for who, words in WHO.items() for word in words.split(",")}
    found = {word: [one.user_id or min(one.names.values()) for one in persons.find(word)] for word in asked}
    assert {word: " ".join(who) for word, who in found.items()} == asked
