"""The hosts of a run as people look for them, on the page and in a spreadsheet."""

from datetime import date, timedelta

import polars as pl
import pytest

from ownership.declaration import empty
from ownership.history import current_owners, with_conflict_since
from ownership.tables import AcknowledgedConflicts, AuditSample
from reports.story import hosts_by_now, hosts_sheet, planned_first, sort_key
from tests.ownership.builders import NOW, PEOPLE, PRESENT, counts, decide, host, hosts, plan, reading, table

LOGONS = counts(
    ("pc-1", "ann", 9), ("pc-2", "ann", 7), ("pc-2", "bob", 3), ("kiosk", "ann", 1), ("kiosk", "bob", 1)
)
ASSETS = hosts(host("h1", "kiosk"), host("h2", "pc-1"), host("h3", "pc-2", owners=("u2", "u9")))
UNDO = "asset-owners undo run-1 --host h2 --wrong"
OF_NOW = (PEOPLE, PRESENT)
NOBODY = empty(AcknowledgedConflicts)
NO_ANSWERS = empty(AuditSample)


def by_now(assets, *outcomes, acknowledged=NOBODY, answers=NO_ANSWERS):
    """The hosts after a run, and after writes of the owners that it planned with these outcomes."""
    decided = decide(LOGONS, PEOPLE, assets)
    decisions = with_conflict_since(decided, decided.clear())
    planned = plan(decisions, PEOPLE, assets)
    writes = pl.concat(
        planned.with_columns(outcome=pl.lit(outcome), completed_at=pl.lit(NOW + timedelta(minutes=minutes)))
        for minutes, outcome in enumerate(outcomes or ["not_written"])
    ).lazy()
    owners = current_owners(assets, PEOPLE, writes)
    read = reading(current_owners=owners, acknowledged_conflicts=acknowledged, audit_sample=answers)
    return planned_first(hosts_by_now(decisions, read, writes, PRESENT))


ANN = "ann@corp.example (u1)"


def test_the_sheet_has_a_row_for_each_host_with_what_can_be_filtered_and_what_would_change_it():
    conflict = {"host_id": "h3", "existing_owner": "u2,u9", "resolved_owner": "u1", "evidence": "majority"}
    said = {"by": "kim", "acknowledged_at": NOW, "note": "a loan"}
    acknowledged = table(AcknowledgedConflicts, conflict | said)
    sheet = hosts_sheet(by_now(ASSETS, "written", acknowledged=acknowledged), *OF_NOW)
    day, ann, nobody = date(2026, 3, 2), "ann@corp.example", (None, None)
    doubts = "user mostly on other hosts (33% here), no logon for 28 days"
    majority = f"ann@corp.example (u1): 7 of 10 logons on 1 day, {doubts}"
    assert sheet.drop("In words").rows() == [
        (
            *("pc-1", "written", "only one user", ann, ann, *nobody, 1.0, None, day, "Sales", *[None] * 3),
            "To change the owner, set it in the inventory (asset_owner): no run replaces an owner.",
            *(None, *[None] * 4, "h2", "u1", None),
        ),
        (
            *("pc-2", "conflict", "acknowledged", "bob@corp.example, u9", "bob@corp.example", *nobody),
            *(0.7, None, day, *[None] * 4),
            "The conflict is acknowledged. To end that: asset-owners conflicts --undo h3",
            *(None, NOW.date(), "kim", NOW.date(), "a loan", "h3", "u2, u9", None),
        ),
        (
            *("kiosk", "no owner", "no majority", *nobody, *nobody, 0.5, None, day, *[None] * 4),
            "ann would be named as the owner with 1 more logon.",
            *(None, *[None] * 4, "h1", None, None),
        ),
    ]
    assert sheet["In words"][1] == (
        f"pc-2 belongs to bob@corp.example (u2), u9 (no such user asset) in the inventory, but its "
        f"primary user is {majority}. kim acknowledged this conflict on {NOW:%Y-%m-%d}: a loan."
    )
    (planned,) = hosts_sheet(by_now(ASSETS, "planned"), *OF_NOW)[:1].to_dicts()
    expected = {"Status": "planned", "Owner": None, "Planned owner": ann, "Planned owner's id": "u1"}
    assert planned.items() >= expected.items()
    assert planned["What would change it"] == "The next run that may write sets ann@corp.example (u1)."


def test_an_owner_who_was_forgotten_since_is_not_said_to_be_written():
    forgotten = pl.lit("forgotten-0123456789abcdef")
    told = hosts_sheet(by_now(ASSETS, "planned").with_columns(resolved_owner=forgotten), *OF_NOW)
    assert told["What would change it"].str.contains("was forgotten: no run names them").all()
    assert told["In words"][0] == "pc-1 has no owner yet."
    nobody = pl.lit(None, pl.String)
    changed = {"username": forgotten, "resolved_owner": nobody, "match": pl.lit("no_user_asset")}
    told = hosts_sheet(by_now(ASSETS).with_columns(**changed), *OF_NOW)["What would change it"]
    assert not told.str.contains("forgotten-").any(), "nobody is to give them a user asset"
    assert told.str.contains("was forgotten: no run names them").all()


@pytest.mark.parametrize(
    ("outcomes", "status", "why", "owners"),
    [
        (["planned"], "planned", "only one user", []),
        (["written", "not_written"], "written", "only one user", ["u1"]),
        (["failed", "owned_meanwhile"], "no owner", "write failed", []),
        ([None], "no owner", "not written yet", []),
    ],
)
def test_what_was_sent_counts_for_more_than_what_left_a_host_unchanged(outcomes, status, why, owners):
    found = by_now(hosts(host("h2", "pc-1")), *outcomes).filter(host_id="h2")
    assert found.select("status", "why", "owner_ids").row(0) == (status, why, owners)


@pytest.mark.parametrize(
    ("host_id", "user_id", "outcome", "reason", "said"),
    [
        (
            "h2",
            "u1",
            "written",
            "answered no",
            f"Undo it as wrong, so that no run of this instance writes it here again: {UNDO}",
        ),
        ("h2", "u9", "written", "only one user", "To change the owner, set it"),
        ("h2", "u1", "written long ago", "only one user", "To change the owner, set it"),
        ("h2", "u1", "failed", "write failed", "Somebody said that this is not ann's. Set the right owner"),
        ("h3", "u2", "written", "clear majority", "Clear asset_owner of pc-2"),  # whom a person has set
    ],
)
def test_an_owner_who_was_written_and_answered_no_is_to_be_undone_as_wrong(
    host_id, user_id, outcome, reason, said
):
    at = NOW - timedelta(days=401 if outcome == "written long ago" else 399)
    answer = {"host_id": host_id, "user_id": user_id, "right": False, "answered_at": at}
    answers, outcome = table(AuditSample, answer), outcome.partition(" ")[0]
    found = hosts_sheet(by_now(ASSETS, outcome, answers=answers), *OF_NOW)
    row = found.row(by_predicate=pl.col("Host id") == host_id, named=True)
    assert (row["Reason"], row["What would change it"][: len(said)]) == (reason, said)
    assert row["In words"].endswith("Somebody answered no: this owner is wrong.") == (reason == "answered no")


def test_names_are_sorted_as_people_do():
    names = ["", "007", "8", "9" * 19, "1" * 20, "a", "B", "c1d2", "c1d10"]
    assert sorted(set(names), key=sort_key) == names
