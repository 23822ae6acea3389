"""Accounts as real logs and directories write them: the real engine, a whole run (rules 1.3, 2.1)."""

import pytest

from sandbox.company import MAPPING
from tests.end_to_end.stand import TODAY, at_noon, documents, logons

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unrecorded", "no_catalogue", "no_report")]

PEOPLE = [
    {"id": "dan", "user_email": "dan@corp.example", "directory_user_surname": "Miller"},
    {"id": "eve", "user_email": "eve@corp.example"},
    {"id": "carol", "user_email": "carol@corp.example"},
    {"id": "maria", "directory_user_sam_account_name": "mweber"},
    {"id": "max", "user_email": "mweber@corp.example"},
    {"id": "gone", "user_email": "frank@corp.example", "account": {"enabled": False}},
    {
        "id": "chris",
        "user_email": "christopher.montgomery@corp.example",
        "directory_user_sam_account_name": "christopher.montgome",
    },
]
LOGONS = {
    "pc-principal": {r"dan\@corp.example@REALM": 10, "eve": 2, "CORP\\": 3, "@dan": 3},
    "pc-microsoft": {r"MicrosoftAccount\carol@outlook.example": 5},
    "pc-doubled": {r"MicrosoftAccount\\carol@outlook.example": 5},
    "pc-local": {r"PC-LOCAL\miller": 5, r"PC-LOCAL\\miller": 4},
    "pc-frank": {"frank": 5},
    "pc-weber": {r"CORP\mweber": 5},
    "pc-cut": {"christopher.montgome": 5, "christopher.montgomery@corp.example": 5},
    "pc-kiosk": {"eve": 5},
}


@pytest.fixture
def run(engine_stand):
    """Runs over these logons; gives evidence, match and user of each host, and the owners written."""
    stand, index = engine_stand, "logs-accounts"
    given = [
        one
        for host, users in LOGONS.items()
        for user, events in users.items()
        for one in logons(host, user, events, at=at_noon(TODAY))
    ]
    stand.engine.load(index, MAPPING, documents(given))

    def run(**rules):
        assets = [{"id": name, "search_agent_name": name, "group": name[3:8]} for name in LOGONS]
        stand.begin(assets, PEOPLE)
        ran = stand.run({"index": index, "rules": rules})
        assert ran.status == 0, ran.stderr
        rows = stand.tables.of_run("owner_decisions", ran.report["run_id"])
        decisions = rows.select("host_id", "evidence", "match", "username").rows()
        return {host: what for host, *what in decisions}, {
            host: fields["asset_owner"] for host, fields in stand.written().items()
        }

    yield run
    stand.engine.request("DELETE", index)


def test_accounts_lead_to_the_people_whose_they_are_and_to_nobody_else(run):
    excluded = {"exclude_assets": {"group": ["kios*"]}, "exclude_user_assets": {"account.enabled": ["false"]}}
    decisions, owners = run(**excluded)
    assert decisions == {
        "pc-principal": ["majority", "matched", "dan"],
        "pc-microsoft": ["single_user", "no_user_asset", r"microsoftaccount\carol@outlook.example"],
        "pc-doubled": ["single_user", "no_user_asset", r"microsoftaccount\carol@outlook.example"],
        "pc-local": ["single_user", "no_user_asset", r"pc-local\miller"],
        "pc-frank": ["single_user", "no_user_asset", "frank"],
        "pc-weber": ["single_user", "ambiguous_user", "mweber"],
        "pc-cut": ["no_majority", None, "christopher.montgome"],
        "pc-kiosk": ["excluded_host", None, "eve"],
    }
    assert owners == {"pc-principal": "dan"}


def test_accounts_of_one_person_are_one_user_where_the_rules_say_so(run):
    decisions, owners = run(unite_accounts=True, domains=["CORP"])
    assert decisions["pc-cut"] == ["single_user", "matched", "christopher.montgome"]
    assert decisions["pc-weber"] == ["single_user", "ambiguous_user", "mweber"]
    assert owners == {"pc-principal": "dan", "pc-cut": "chris", "pc-kiosk": "eve", "pc-frank": "gone"}
