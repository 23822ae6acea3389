"""What kind of account and what kind of machine: by names, and by what is done."""

from datetime import timedelta

import pytest

from ownership.declaration import validated
from ownership.kinds import kinds
from ownership.rules import Rules
from ownership.tables import AccountProfiles, HostProfiles
from tests.ownership.builders import DAY, PEOPLE, counts, host, hosts


def profiles_of(*logons, assets=None):
    found = kinds(
        counts(*logons),
        hosts() if assets is None else assets,
        PEOPLE,
        rules=Rules(),
        user_value_field="user_email",
    )
    return validated(AccountProfiles, found.accounts), validated(HostProfiles, found.hosts)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("SYSTEM", "built_in"),
        ("NT-AUTORITÄT\\Lokaler Dienst", "built_in"),
        ("DWM-12", "built_in"),
        ("UMFD-0", "built_in"),
        ("defaultuser0", "built_in"),
        ("HealthMailbox28ea308", "built_in"),
        ("MSOL_2826475d0356", "built_in"),
        ("IUSR", "built_in"),
        ("S-1-5-21-1004336348-1177238915-682003330-512", "built_in"),
        ("svc_backup", "service"),
        ("sccm-push", "service"),
        ("qualys", "service"),
        ("CORP\\svc_ADFS$", "service"),
        ("WS-0815$", "computer"),
        ("srv-1251$", "computer"),
        ("BACKUP-01$", "computer"),
        ("Administrator", "administrator"),
        ("adm-kim", "administrator"),
        ("j.admin", "administrator"),
        ("t0_kim", "administrator"),
        ("admkim", "administrator"),
        ("ann", "person"),
        ("kim", "person"),
        ("adam", "unknown"),
        ("svenja", "unknown"),
        ("scanlon", "unknown"),
        ("dwmiller", "unknown"),
    ],
)
def test_an_account_is_known_by_its_name(name, kind):
    accounts, _ = profiles_of(("pc-1", name, 5))
    [account] = accounts.iter_rows(named=True)
    assert account["kind"] == kind
    assert bool(account["reasons"]) == (kind != "unknown")


def test_an_account_is_known_by_what_it_does():
    roaming = [(f"pc-{n}", "ann", 1) for n in range(10)]
    pushing = [(f"pc-{n}", "deployer", 1, DAY + timedelta(days=n)) for n in range(10)]
    seldom = [(f"pc-{n}", "visitor", 1, DAY + timedelta(days=n)) for n in range(9)]
    accounts, _ = profiles_of(*roaming, *pushing, *seldom)
    rows = {row["username"]: row for row in accounts.iter_rows(named=True)}
    assert [rows[name]["kind"] for name in ("ann", "deployer", "visitor")] == [
        "administrator", "service", "unknown",
    ]  # fmt: skip
    assert rows["ann"]["reasons"] == ["It logs on to 10.0 hosts on an average active day."]
    assert rows["deployer"]["reasons"] == ["No user asset has the name, and it logs on to 10 hosts."]
    assert [rows["ann"][name] for name in ("hosts", "active_days", "user_assets")] == [10, 1, 1]


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
        ("server", [("pc-1", "svc_sql", 5), ("pc-1", "SYSTEM", 5)], "Services log on, and at most"),
        ("server", [("pc-1", "svc_sql", 5), ("pc-1", "adm-kim", 5)], "Services log on, and at most"),
        ("personal", [("pc-1", "svc_sql", 5), ("pc-1", "ann", 5)], "One user"),
        ("collector", [("WEC01", "ann", 5)], "The name"),
        ("collector", [("pc-1", f"user{n}", 2) for n in range(60)], "60 users log on, all"),
        ("unknown", [("pc-1", "SYSTEM", 5)], ""),
        ("personal", [("srvenka-pc", "ann", 5)], "One user"),
    ],
)  # fmt: skip
def test_a_machine_is_known_by_its_name_and_by_who_logs_on(kind, logons, reason):
    _, machines = profiles_of(*logons)
    [machine] = machines.iter_rows(named=True)
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
