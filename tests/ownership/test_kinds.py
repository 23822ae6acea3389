"""What kind of account and what kind of machine: by names, and by what is done."""

import unicodedata
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from ownership.declaration import validated
from ownership.kinds import kinds
from ownership.rules import Rules
from ownership.tables import AccountProfiles, HostProfiles
from tests.ownership.builders import DAY, PEOPLE, counts, host, hosts, user, users


def profiles_of(*logons, assets=None, people=PEOPLE):
    found = kinds(
        counts(*logons),
        hosts() if assets is None else assets,
        people,
        rules=Rules(),
        user_value_field="user_email",
    )
    return validated(AccountProfiles, found.accounts), validated(HostProfiles, found.hosts)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("built_in", (
            "SYSTEM, NT-AUTORITÄT\\Lokaler Dienst, DWM-12, UMFD-0, defaultuser0, HealthMailbox28ea308, "
            "MSOL_2826475d0356, IUSR, IIS APPPOOL\\DefaultAppPool, NT SERVICE\\MSSQL$PROD, CLIUSR, "
            "NT INSTANS\\NÄTVERKSTJÄNST, NETVÆRKSTJENESTE, NETTVERKSTJENESTE, Verkkopalvelu, СЕТЕВАЯ СЛУЖБА, "
            "AĞ HİZMETİ, USŁUGA SIECIOWA, SÍŤOVÁ SLUŽBA, ΥΠΗΡΕΣΙΑ ΔΙΚΤΥΟΥ, Επισκέπτης, "
            "S-1-5-21-1004336348-1177238915-682003330-512"
        )),
        ("service", (
            "svc_backup, sccm-push, qualys, svcweb, sqlsvc, ldap_bind, app-crm, gmsa-web$, "
            "CORP\\svc_ADFS$"
        )),
        ("computer", "WS-0815$, srv-1251$, BACKUP-01$"),
        ("administrator", (
            "Administrator, adm-kim, j.admin, t0_kim, admkim, a-jdoe, su-jdoe, priv-jdoe, jdoe-adm, "
            "jdoe_admin, Järjestelmänvalvoja, Администратор"
        )),
        ("person", "ann, kim"),
        ("unknown", "adam, svenja, scanlon, dwmiller"),
    ],
)  # fmt: skip
def test_an_account_is_known_by_its_name(kind, names):
    accounts, _ = profiles_of(*((f"pc-{n}", name, 5) for n, name in enumerate(names.split(", "))))
    assert accounts.filter(pl.col("kind") != kind).is_empty()
    assert accounts.height == len(names.split(", "))
    assert set(accounts["reasons"].list.len() > 0) == {kind != "unknown"}


def told(name, *people):
    accounts, _ = profiles_of(("pc-1", name, 5), people=users(*people))
    return accounts["kind"].item()


SA = user("u1", surname="Sá", email="ann.sa@corp.example")


@pytest.mark.parametrize(
    ("name", "kind", "person"),
    [
        ("da.sm", "person", user("u1", sam="da.sm", surname="Smith")),
        ("guest", "person", user("u1", surname="Guest")),
        ("root", "person", user("u1", email="root@corp.example")),
        ("sa", "person", user("u1", surname="Sá")),
        ("sa-m", "person", user("u1", surname="Sá")),
        ("jenkins.tom", "person", user("u1", surname="Jenkins")),
        ("jenkins2", "person", user("u1", surname="Jenkins")),
        ("job_sam", "person", user("u1", surname="Job", email="samuel@corp.example")),
        ("admiraal-p", "person", user("u1", surname="Admiraal")),
        ("a-deboer", "person", user("u1", surname="de Boer")),
        ("a-mueller", "person", user("u1", surname="Müller")),
        ("svc_sá", "service", SA),
        ("sa_backup", "service", SA),
        ("adm-sá", "administrator", SA),
        ("su-sa", "administrator", SA),
        ("admsá", "administrator", SA),
    ],
)
def test_whoever_has_a_user_asset_is_a_person_and_a_surname_within_a_name_makes_none(name, kind, person):
    assert told(name, person) == kind
    assert told(name) != "person"


SURNAMES = [
    name.replace("_", " ") for name in Path(__file__).with_name("surnames.txt").read_text("utf-8").split()
]
FIRST_NAMES = ("anna", "adam", "dana", "sara", "samuel", "susan", "tom", "tina", "job", "bo", "pia", "minh")
SCHEMES = (
    *("{first}.{last}", "{last}.{first}", "{first[0]}.{last}", "{last}.{first[0]}", "{first[0]}{last}"),
    *("{first}{last[0]}", "{last}{first[0]}", "{last}", "{first}_{last}", "{first[0]}-{last}"),
    "{last}_{first[0]}",
)
KNOWN_BY_THEMSELVES = (
    *("{first}.{last}", "{first[0]}.{last}", "{first[0]}{last}", "{first}{last[0]}", "{last}{first[0]}"),
    "{first[0]}{last[0]}{n:04}",
)
"""Schemes whose logins are like no service's, whoever has a user asset."""


@pytest.mark.parametrize(
    ("scheme", "with_assets"),
    [*((scheme, True) for scheme in SCHEMES), *((scheme, False) for scheme in KNOWN_BY_THEMSELVES)],
)
def test_people_of_ten_languages_are_no_services_or_administrators_by_their_names(scheme, with_assets):
    """Fewer than one in a hundred."""
    people = [(FIRST_NAMES[n % len(FIRST_NAMES)], last) for n, last in enumerate(SURNAMES)]
    assets = [
        user(f"u{n}", f"{first}+{plain(last)}@corp.example", surname=last)
        for n, (first, last) in enumerate(people)
    ]
    logins = [scheme.format(first=first, last=plain(last), n=n) for n, (first, last) in enumerate(people)]
    logons = ((f"pc-{n}", login, 5) for n, login in enumerate(logins))
    accounts, _ = profiles_of(*logons, people=users(*assets) if with_assets else users())
    slandered = accounts.filter(pl.col("kind").is_in(["service", "administrator", "built_in", "computer"]))
    assert 100 * slandered.height < len(SURNAMES), slandered["username"].to_list()


def plain(surname):
    """The surname as logins have it."""
    apart = unicodedata.normalize("NFD", surname.lower().translate(str.maketrans("ıłøđß", "ilods")))
    return "".join(c for c in apart if c.isalpha())


def test_an_account_is_known_by_what_it_does():
    days = [DAY + timedelta(days=n) for n in range(8)]
    roaming = [(f"pc-{n}", "ann", 1, days[n // 3]) for n in range(20)]
    pushing = [(f"pc-{n}", "deployer", 1, days[0]) for n in range(20)]
    seldom = [(f"pc-{n}", "visitor", 1, days[0]) for n in range(19)]
    owners = [(f"pc-{n}", f"owner{n}", 9, days[0]) for n in range(20)]
    wards = [(f"ward-{n}", f"nurse{m}", 1, days[n // 3]) for n in range(24) for m in range(9)]
    desktops = [
        (f"vdi-{n}", name, 1, DAY + timedelta(days=n)) for n in range(25) for name in ("bob", "guest1")
    ]
    accounts, _ = profiles_of(*roaming, *pushing, *seldom, *owners, *wards, *desktops)
    rows = {row["username"]: row for row in accounts.iter_rows(named=True)}
    assert [rows[name]["kind"] for name in ("ann", "deployer", "visitor", "bob", "guest1", "nurse1")] == [
        "administrator", "service", "unknown", "person", "unknown", "unknown",
    ]  # fmt: skip
    assert [rows["ann"][name] for name in ("hosts", "active_days", "user_assets")] == [20, 7, 1]


def used(hostname, name):
    """One user has the machine for a week."""
    return [(hostname, name, 3, DAY + timedelta(days=n)) for n in range(5)]


MANY = [f"user{n}" for n in range(12)]


@pytest.mark.parametrize(
    ("kind", "logons", "reason"),
    [
        ("personal", [("pc-1", "ann", 5), ("pc-1", "SYSTEM", 50)], "One user"),
        ("personal", [("pc-1", "ann", 7), ("pc-1", "bob", 3)], "One of several"),
        ("shared", [("pc-1", "ann", 6), ("pc-1", "bob", 4)], "None of 2 users"),
        ("kiosk", [("kiosk-3", "ann", 5)], "The name"),
        ("kiosk", [("pc-1", name, 3) for name in MANY], "12 users log on, all"),
        ("shared", [("pc-1", name, 1) for name in MANY] + [("pc-1", "ann", 10)], "None of 13 users"),
        ("server", [("SRV-01.corp.example", "ann", 5)], "The name"),
        ("server", [("mordordc.theshire.local", "ann", 5)], "The name"),
        ("server", [("pc-1", "WS-1$", 5), ("pc-1", "WS-2$", 5), ("pc-1", "ann", 3)], "Accounts of 2 other"),
        ("personal", [("pc-1", "PC-1$", 5), ("pc-1", "WS-2$", 5), ("pc-1", "ann", 3)], "One user"),
        ("server", [("pc-1", "svc_sql", 5), ("pc-1", "adm-kim", 5)], "Services log on, and at most"),
        ("personal", [("pc-1", "svc_sql", 5), ("pc-1", "ann", 5)], "One user"),
        ("collector", [("WEC01", "ann", 5)], "The name"),
        ("collector", [("pc-1", f"user{n}", 2) for n in range(60)], "60 users log on, all"),
        ("unknown", [("pc-1", "SYSTEM", 5)], ""),
        ("personal", [("DC-LT-0001", "ann", 5)], "One user"),
        ("personal", used("LAB-PC-01", "ann"), "One user"),
        ("personal", used("DC-0001", "ann"), "One user"),
        ("server", used("DC-0001", "adm-kim"), "The name"),
        ("kiosk", [("LAB-PC-01", "ann", 5), ("LAB-PC-01", "bob", 5)], "The name"),
        ("server", [("DC-0001", f"user{n}", 2) for n in range(60)], "The name"),
        ("kiosk", [("pc-1", f"user{n}", 2, DAY + timedelta(days=n % 3)) for n in range(60)], "60 users"),
    ],
)  # fmt: skip
def test_a_machine_is_known_by_its_name_and_by_who_logs_on(kind, logons, reason):
    _, machines = profiles_of(*logons)
    machine = machines.row(0, named=True)
    assert machine["kind"] == kind
    assert "".join(machine["reasons"][:1]).startswith(reason)


def test_how_the_users_of_a_machine_share_it():
    days = [DAY + timedelta(days=n) for n in range(4)]
    _, machines = profiles_of(
        *(("pc-1", name, 3, day) for name, day in zip(("ann", "bob", "ann", "ann"), days, strict=True)),
        ("pc-1", "bob", 3, days[3] + timedelta(days=1)),
        ("pc-1", "svc_x", 90, days[0]),
        assets=hosts(host("h1", "PC-1", "spare"), host("h2", "never")),
    )
    [machine] = machines.iter_rows(named=True)
    assert (machine["host_id"], machine["hostname"], machine["users"]) == ("h1", "pc-1", 2)
    assert (machine["active_days"], machine["leader_days"]) == (5, 3)
    assert round(machine["entropy"], 3) == 0.971  # -(0.6 log2 0.6 + 0.4 log2 0.4)
