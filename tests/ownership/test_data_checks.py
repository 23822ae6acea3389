from base64 import b64encode, urlsafe_b64encode
from datetime import timedelta
from hashlib import md5, sha1, sha224, sha256, sha384, sha512
from typing import Any
from uuid import UUID

import polars as pl
import pytest

from ownership import data_checks
from ownership.rules import Rules
from ownership.tables import OwnerWrites
from tests.ownership.builders import NOW, TARGET, counts, host, hosts, shares_of, table
from tests.resources.writeback.world import row, values

ODD = {"problem": "its field x holds a dict"}


@pytest.mark.parametrize(("short", "shared"), [(False, ["ws1"]), (True, ["ws1", "ws2"])])
def test_host_names_that_several_assets_have(short, shared):
    assets = hosts(
        host("h2", "WS1"),
        host("h1", "ws1", " ws1 "),
        host("h3", "ws2.corp.example"),
        host("h4", "ws2.lab.example"),
        host("h5"),
        host("h6", "-"),
        host("h7", "-"),
    )
    found = data_checks.shared_hostnames(assets, short=short)
    assert found["hostname"].to_list() == shared
    assert found["host_ids"][0].to_list() == ["h1", "h2"]


@pytest.mark.parametrize(
    ("spellings", "domains"),
    [
        ((r"CORP\alice", r"LAB\alice"), ["corp", "lab"]),
        ((r"CORP\alice", "alice@corp.example", "alice"), None),
        ((r"CORP\alice", "alice@corp.example", r"LAB\alice"), ["corp.example", "lab"]),
        (("alice@corp.example", "alice@corp.other"), ["corp.example", "corp.other"]),
        ((r"CORP\alice", r"corp\ALICE"), None),
    ],
)
def test_users_of_domains_that_are_not_plainly_one(spellings, domains):
    shares = shares_of(counts(*(("ws1", name, 1) for name in spellings), ("ws2", r"X\alice", 1)), Rules())
    found = [
        (host, user, list(names)) for host, user, names in data_checks.users_of_unlike_domains(shares).rows()
    ]
    assert found == ([("ws1", "alice", domains)] if domains else [])


PERSONS = [f"{first}.{last}" for first in ("anna", "bo", "abe") for last in ("li", "miller", "fee")]
HASHES = (md5, sha1, sha224, sha256, sha384, sha512)
DIGESTS = {f().digest_size: [f(name.encode()).digest() for name in PERSONS] for f in HASHES}
UNPADDED = [[urlsafe_b64encode(one).decode().rstrip("=") for one in DIGESTS[size]] for size in DIGESTS]
MASKS = [
    *((f"{2 * size} hexadecimal digits", [one.hex() for one in DIGESTS[size]]) for size in DIGESTS),
    ("16 hexadecimal digits", [one.hex()[:16].upper() for one in DIGESTS[16]]),
    ("96 hexadecimal digits", ["pepper_" + one.hex() for one in DIGESTS[48]]),
    ("40 hexadecimal digits", [f"CORP\\{one.hex().upper()}" for one in DIGESTS[20]]),
    ("base64", [b64encode(one).decode() for one in DIGESTS[20]]),
    ("base64", [b64encode(name.encode()).decode() for name in PERSONS]),
    *(("base64", names) for names in UNPADDED),
    ("UUIDs", [str(UUID(bytes=one)) for one in DIGESTS[16]]),
    ("UUIDs", [f"{{{UUID(bytes=one)}}}".upper() for one in DIGESTS[16]]),
    ("a mask", ["***"]),
    ("a mask", ["CORP\\xxxxx", "CORP\\<hidden>", "a***"]),
]
PLAIN = [
    PERSONS,
    ["ann", "bob", "abe", "fee", "cafe", "ed", "a", "x"],
    [f"u{number:06}" for number in range(9)],
    [f"{number:018}" for number in range(9)],
    [f"CORP\\{number:016}" for number in range(9)],
    ["PC-0815", "LT-1101", "DESKTOP-1A2B3C4", "DESKTOP-9F8E7D6", "WIN-0ABCDEF1234"],
    [f"5CG{number:04}XYZ" for number in range(9)],
    [one.hex()[:12] for one in DIGESTS[16]],  # a MAC address, or what a container is called
    [f"i-0{one.hex()[:16]}" for one in DIGESTS[16]],  # a machine of a cloud
    [f"LaptopMarketingRoom{number:06}" for number in range(9)],
    [f"S-1-5-21-1004336348-1177238915-682003330-{number}" for number in range(1000, 1009)],
    [f"NT VIRTUAL MACHINE\\{UUID(bytes=one)}" for one in DIGESTS[16]],
    ["Miller, Anna (HR)", "Li, Bo (IT)"],
    ["山田", "josé", "DWM-1", "NT AUTHORITY\\SYSTEM", "LOCAL SERVICE"],
    ["-"],
    [],
]


def test_masked_names_are_known_by_the_form_that_most_of_them_share():
    days: list[tuple[str | None, list[str]]] = [*MASKS]
    days += [(words, names + PERSONS[: len(names) // 4]) for words, names in MASKS]
    days += [(None, names) for names in PLAIN]
    days += [(None, names[: len(PERSONS)] + PERSONS[: len(names)]) for _, names in MASKS]
    rows = [(day, name) for day, (_, names) in enumerate(days) for name in names]
    found = (
        pl.DataFrame(rows, schema={"day": pl.Int64, "name": pl.String}, orient="row")
        .lazy()
        .group_by("day")
        .agg(words=data_checks.masked_form(pl.col("name")))
        .collect()
    )
    assert dict(found.rows()) == {day: words for day, (words, names) in enumerate(days) if names}
    for words, names in days:
        sample = pl.DataFrame({"name": names}, schema={"name": pl.String})
        assert sample.select(data_checks.masked_form(pl.col("name"))).item() == words


@pytest.mark.parametrize(
    ("asked", "instead"),
    [
        ((), []),
        (("corp",), []),
        (("LAB", "Corp.Example"), []),
        (("LAB", "example"), [("corp", 2), (None, 1), ("nt authority", 1)]),
    ],
)
def test_accounts_none_of_which_is_of_a_domain_that_is_asked_for(asked, instead):
    accounts = pl.Series([r"CORP\\ann", r"corp\bob", "dan", r"NT AUTHORITY\SYSTEM", None])
    assert data_checks.domains_instead(accounts, asked).rows() == instead
    assert data_checks.domains_instead(accounts[:0], asked).is_empty()


LOCAL = r"WKS-77\miller"


@pytest.mark.parametrize(
    ("logons", "domains"),
    [
        ([("asset-1", LOCAL), ("asset-1", r"CORP\ann"), ("asset-2", r"CORP\bob")], ["wks-77"]),
        ([("asset-1", r"WKS-77\\miller"), ("asset-2", "ann"), ("asset-3", "bob")], ["wks-77"]),
        ([("asset-1", LOCAL), ("asset-2", r"WKS-78\kim"), ("asset-3", r"WKS-79\lee")],
         ["wks-77", "wks-78", "wks-79"]),
        # A long name of a domain is the short one's.
        ([("a", r"CORP\ann"), ("b", r"CORP\bob"), ("c", "kim@corp.example"), ("c", "CORP.EXAMPLE\\kim")], []),
        # The host's own name, cut by Windows or not, and Windows' own domains.
        ([("WKS-77.corp", LOCAL), ("b", r"CORP\bob"), ("c", r"CORP\ann")], []),
        ([("laptop-0123456789", r"LAPTOP-01234567\x"), ("b", r"CORP\bob"), ("c", r"CORP\ann")], []),
        ([("a", r"NT AUTHORITY\SYSTEM"), ("b", r"MicrosoftAccount\kim@outlook.example"), ("c", r".\x")], []),
        # Too few hosts.
        ([("a", LOCAL), ("a", r"CORP\ann")], []),
        ([("a", r"LAB\ann"), ("b", r"CORP\bob")], []),
        ([], []),
    ],
)  # fmt: skip
def test_domains_that_occur_on_one_host_only(logons, domains):
    found = data_checks.domains_of_one_host(counts(*((*one, 2) for one in logons)).collect())
    assert found["domain"].to_list() == domains
    if domains:
        assert found["usernames"][0].to_list() == [logons[0][1]]
        assert found.drop("usernames").row(0) == ("wks-77", "asset-1", 2)


@pytest.mark.parametrize(
    ("unreadable", "assets", "too_many"),
    [(0, 0, False), (10, 10, False), (11, 220, False), (11, 219, True), (11, 11, True), (5, 9, False)],
)
def test_more_than_ten_and_more_than_5_percent_are_too_many(unreadable, assets, too_many):
    assert data_checks.too_many_unreadable(unreadable, assets) == too_many


def wrote(host_id, owner, *, days_ago=2, outcome="written", **changes):
    """A row of owner_writes."""
    at = NOW - timedelta(days=days_ago)
    changes |= {"outcome": outcome, "intended_at": at, "completed_at": None if outcome == "intended" else at}
    return row(host_id, new=values(owner), run_id=f"run-{days_ago}", **changes)


WRITES: dict[str, tuple[list[dict[str, Any]], tuple[str, ...] | None, tuple[str, str | None] | None]] = {
    "kept": ([wrote("h1", "u1")], ("u1",), None),
    "one of several": ([wrote("h1", "u1")], ("u2", "u1"), None),
    "emptied": ([wrote("h1", "u1")], (), ("u1", None)),
    "another's": ([wrote("h1", "u1")], ("u2", "u3"), ("u1", "u2,u3")),
    "cannot be read": ([wrote("h1", "u1")], None, None),
    "another inventory": ([wrote("h1", "u1", target="elsewhere")], (), None),
    "not listed any more": ([wrote("h7", "u1")], (), None),
    "written since the listing": ([wrote("h1", "u1", days_ago=-1)], (), None),
    "undone": ([wrote("h1", "", days_ago=1, outcome="undone"), wrote("h1", "u1")], (), None),
    "written again": ([wrote("h1", "u2", days_ago=1), wrote("h1", "u1")], ("u2",), None),
    "taken": ([wrote("h1", "u1"), wrote("h1", "u1", days_ago=1, outcome="owned_meanwhile")], ("u2",), None),
    "refused since": ([wrote("h1", "u1"), wrote("h1", "u1", days_ago=1, outcome="failed")], (), ("u1", None)),
    "refused": ([wrote("h1", "u1", outcome="failed")], (), None),
    "not written": ([wrote("h1", "u1", outcome="not_written")], (), None),
    "pending": ([wrote("h1", "u1", outcome="intended")], (), None),
    "forgotten since": ([wrote("h1", "forgotten-0123456789abcdef")], ("u1",), None),
}


@pytest.mark.parametrize(("writes", "owners", "lost"), WRITES.values(), ids=WRITES)
def test_an_owner_is_lost_that_a_run_wrote_and_the_host_does_not_show(writes, owners, lost):
    odd = ODD if owners is None else {}
    held = host("h1", "ws1") | {"owner_ids": owners if owners is None else list(owners)} | odd
    assets = hosts(held, host("h2", "ws2"))
    found = data_checks.lost_owners(table(OwnerWrites, *writes).lazy(), assets, target=TARGET)
    assert found.rows() == ([("h1", *lost, NOW - timedelta(days=2))] if lost else [])


def test_a_forwarder_is_a_name_under_which_several_hosts_send():
    senders = pl.DataFrame(
        {
            "document_hostname": ["ws1", "few", "collector", "silent"],
            "events": [90, 1, 5, 1],
            "host_names": [["WS1", "ws1.corp.example", "-"], ["a", "B"], ["pc1", "pc2.corp.example"], []],
        }
    )
    found = data_checks.forwarders(senders, exclude_hosts=())
    assert [(*row[:2], list(row[2])) for row in found.rows()] == [
        ("collector", 5, ["pc1", "pc2"]),
        ("few", 1, ["a", "b"]),
    ]
    assert data_checks.forwarders(senders, exclude_hosts=("coll*", "FEW")).is_empty()
