import unicodedata
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from ownership.declaration import validated
from ownership.tables import AccountProfiles, HostProfiles
from tests.ownership.builders import DAY, PEOPLE, counts, host, hosts, resolution, user, users


def profiles_of(*logons, assets=None, people=PEOPLE):
    found = resolution(counts(*logons), people, hosts() if assets is None else assets).kinds
    return validated(AccountProfiles, found.accounts), validated(HostProfiles, found.hosts)


BY_NAME = {
    "built_in": (
        "SYSTEM, NT-AUTORITÄT\\Lokaler Dienst, DWM-12, UMFD-0, defaultuser0, HealthMailbox28ea308, "
        "MSOL_2826475d0356, IUSR, IIS APPPOOL\\DefaultAppPool, NT SERVICE\\MSSQL$PROD, CLIUSR, "
        "NT INSTANS\\NÄTVERKSTJÄNST, NETVÆRKSTJENESTE, NETTVERKSTJENESTE, Verkkopalvelu, СЕТЕВАЯ СЛУЖБА, "
        "AĞ HİZMETİ, USŁUGA SIECIOWA, SÍŤOVÁ SLUŽBA, ΥΠΗΡΕΣΙΑ ΔΙΚΤΥΟΥ, Επισκέπτης, "
        "S-1-5-21-1004336348-1177238915-682003330-512, S-1-5-18, S-1-5-90-0-2, LOGON ANÔNIMO, "
        "HELYI SZOLGÁLTATÁS, SERVICE RESEAU, "
        "СИСТЕМ, МЕСТНАЯ СЛУЖБА, SÜSTEEM, Külaline, Hosť, USLUGA LOKALNA, ACCESSO ANONIMO, SERVICIO LOC, "
        "שירות מקומי, ローカルサービス, WsiAccount, ContainerAdministrator, krbtgt_4711, IWAM_WEB1, "
        "NT VIRTUAL MACHINE\\4B9FC5E5-6A0F-4A4C-9B1B-0F5D7C1E2A3B, SM_2c5f3a8e0b7c4d1a8, LocalService, "
        "$531000-2T1S5Q0IVN1C, VORDEFINIERT\\Gast, iis apppool\\.NET v4.5 Classic, pGMSA_1a2b3c$, "
        "kioskUser0, IIS APPPOOL\\WebShop, DefaultAccount, WDAGUtilityAccount, HomeGroupUser$, ASPNET, "
        "VUSR_WEB1, WS-0815\\Anon001, CTX\\anon017, QBDataServiceUser33, QBDataServiceUser, UpdatusUser, "
        "Acronis Agent User, LogMeInRemoteUser, __vmware_user__, __sbs_netsetup__, Ctx_StreamingSvc, "
        "ctx_cpsvcuser, lenovo_tmp_aB3dE9, SQLServerMSSQLUser$WS1$SQLEXPRESS, SQLDebugger, TsInternetUser, "
        "KL-AK-0F3C5D7E9A1B2C, cloudbase-init, cyg_server, VMwareAgentUser, NvidiaTelemetryUser2"
    ),
    "service": (
        "svc_backup, sccm-push, qualys, svcweb, sqlsvc, ldap_bind, app-crm, gmsa-web$, CORP\\svc_ADFS$, "
        "BackupExec, postgres, SophosUpdateMgr, SophosSAUWS08150, KlNagSvc, mysql, db2inst1"
    ),
    "computer": "WS-0815$, srv-1251$, BACKUP-01$",
    "administrator": (
        "Administrator, adm-kim, j.admin, t0_kim, admkim, a-jdoe, su-jdoe, priv-jdoe, jdoe-adm, "
        "jdoe_admin, Järjestelmänvalvoja, Администратор"
    ),
    "person": "ann, kim",
    "unknown": "adam, svenja, scanlon, dwmiller, dwm1, host.a, gastone, sistemas, vendegh, "
    "S-1-5-21-1004336348-1177238915-682003330-1104, S-1-12-1-1944385920-1270426353-3372436379-2938437236, "
    "anonby, anon, remoteuser, serviceuser, updateuser, sophia, sophoulis, lenovo, acronimo, ctxa, myers, "
    "MicrosoftAccount\\jo@outlook.example",
}


def kinds_of(names, people):
    """The kind of each account, and whether it has a reason."""
    accounts, _ = profiles_of(*((f"pc-{n}", name, 5) for n, name in enumerate(names)), people=people)
    assert accounts.height == len(names)
    has_reason = pl.col("reasons").list.len() > 0
    rows = accounts.select("username", "kind", has_reason).rows()
    return {name.rpartition("\\")[2]: (kind, why) for name, kind, why in rows}


def test_an_account_is_known_by_its_name():
    expected = {
        name.rpartition("\\")[2].lower(): (kind, kind != "unknown")
        for kind, names in BY_NAME.items()
        for name in names.split(", ")
    }
    names = [name for names in BY_NAME.values() for name in names.split(", ")]
    assert kinds_of(names, PEOPLE) == expected


SURNAMED = ("Guest", "Sá", "Jenkins", "Admiraal", "de Boer", "Müller", "Dienst")
HOLDERS = [
    *(user(f"u{number}", surname=surname) for number, surname in enumerate(SURNAMED)),
    user("sm", sam="da.sm", surname="Smith"),
    user("root", email="root@corp.example"),
    user("sam", surname="Job", email="samuel@corp.example"),
]
OF_A_HOLDER = {
    "person": (
        "da.sm, guest, root, sa, sa-m, jenkins.tom, jenkins2, job_sam, admiraal-p, a-deboer, a-mueller"
    ),
    "service": "svc_sá, sa_backup",
    "administrator": "adm-sá, su-sa, admsá",
    "built_in": "lokaler dienst",
}


def test_an_account_with_a_user_asset_is_a_person_and_a_surname_within_a_name_is_not():
    expected = {name: kind for kind, names in OF_A_HOLDER.items() for name in names.split(", ")}
    found = kinds_of(list(expected), users(*HOLDERS))
    assert {name: kind for name, (kind, _) in found.items()} == expected
    assert "person" not in {kind for kind, _ in kinds_of(list(expected), users()).values()}


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
"""Schemes whose logins are like no service's, with or without a user asset."""


@pytest.mark.parametrize(("schemes", "with_assets"), [(SCHEMES, True), (KNOWN_BY_THEMSELVES, False)])
def test_people_of_ten_languages_are_not_services_or_administrators_by_their_names(schemes, with_assets):
    """Fewer than one in a hundred, in each scheme."""
    people = [(FIRST_NAMES[n % len(FIRST_NAMES)], last) for n, last in enumerate(SURNAMES)]
    assets = [
        user(f"u{n}", f"{first}+{plain(last)}@corp.example", surname=last)
        for n, (first, last) in enumerate(people)
    ]
    logins = {
        scheme: [scheme.format(first=first, last=plain(last), n=n) for n, (first, last) in enumerate(people)]
        for scheme in schemes
    }
    logons = ((f"pc-{n}", login, 5) for those in logins.values() for n, login in enumerate(those))
    accounts, _ = profiles_of(*logons, people=users(*assets) if with_assets else users())
    slandered = accounts.filter(pl.col("kind").is_in(["service", "administrator", "built_in", "computer"]))
    for scheme, those in logins.items():
        of_it = set(slandered["username"]) & set(those)
        assert 100 * len(of_it) < len(SURNAMES), (scheme, of_it)


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


@pytest.mark.parametrize(("days", "kind"), [(8, "service"), (9, "unknown")])
def test_an_account_roams_from_two_and_a_half_hosts_a_day_on(days, kind):
    """It has twenty hosts of its own: on 8 days they are 2.5 a day, on 9 fewer."""
    accounts, _ = profiles_of(
        *((f"pc-{n}", "deployer", 1, DAY + timedelta(days=n % days)) for n in range(20))
    )
    assert accounts["kind"].to_list() == [kind]


def used(name):
    """One user has the machine for a week."""
    return [(name, 3, DAY + timedelta(days=n)) for n in range(5)]


CROWD = [f"user{n}" for n in range(60)]
MANY = CROWD[:12]
IN_TURN = [(name, 2, DAY + timedelta(days=n % 3)) for n, name in enumerate(CROWD)]


MACHINES = {
    "alone": ("personal", "One user", [("ann", 5), ("SYSTEM", 50)]),
    "mostly": ("personal", "One of several", [("ann", 7), ("bob", 3)]),
    "by-two": ("shared", "None of 2 accounts", [("ann", 6), ("bob", 4)]),
    "kiosk-3": ("kiosk", "The name", [("ann", 5)]),
    "alike": ("kiosk", "12 users log on, all", [(name, 3) for name in MANY]),
    "one-most": ("shared", "None of 13 accounts", [*((name, 1) for name in MANY), ("ann", 10)]),
    "SRV-01.corp.example": ("server", "The name", [("ann", 5)]),
    "mordordc.theshire.local": ("server", "The name", [("ann", 5)]),
    "visited": ("server", "Accounts of 2 other", [("WS-1$", 5), ("WS-2$", 5), ("ann", 3)]),
    "own": ("personal", "One user", [("OWN$", 5), ("WS-2$", 5), ("ann", 3)]),
    "served": ("server", "Services log on, and at most", [("svc_sql", 5), ("adm-kim", 5)]),
    "served-too": ("personal", "One user", [("svc_sql", 5), ("ann", 5)]),
    "WEC01": ("collector", "The name", [("ann", 5)]),
    "crowded": ("collector", "60 users log on, all", [(name, 2) for name in CROWD]),
    "silent": ("unknown", "", [("SYSTEM", 5)]),
    "DC-LT-0001": ("personal", "One user", [("ann", 5)]),
    "LAB-PC-01": ("personal", "One user", used("ann")),
    "DC-0001": ("personal", "One user", used("ann")),
    "DC-0002": ("server", "The name", used("adm-kim")),
    "LAB-PC-02": ("kiosk", "The name", [("ann", 5), ("bob", 5)]),
    "DC-0003": ("server", "The name", [(name, 2) for name in CROWD]),
    "in-turn": ("kiosk", "60 users", IN_TURN),
}


def test_a_machine_is_known_by_its_name_and_by_who_logs_on():
    logons = [(hostname, *logon) for hostname, (*_, those) in MACHINES.items() for logon in those]
    _, machines = profiles_of(*logons)
    assert machines.height == len(MACHINES)
    found = {row["hostname"]: row for row in machines.iter_rows(named=True)}
    for hostname, (kind, reason, _) in MACHINES.items():
        machine = found[hostname.lower()]
        assert machine["kind"] == kind, hostname
        assert "".join(machine["reasons"][:1]).startswith(reason), hostname


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
