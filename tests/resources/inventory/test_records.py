from datetime import UTC, datetime

import polars as pl
import pytest

from ownership.declaration import polars_schema
from ownership.tables import InventoryHosts, InventoryUsers
from resources.errors import ProtocolError
from resources.inventory.records import host_rows, owner_ids, user_rows
from tests.resources.samples import instance, instance_content

HOST = {
    "search_agent_name": "PC-1",
    "asset_owner": "u-1",
    "department": "Sales",
    "criticality": "high",
    "os": {"name": "Windows"},
}
NOW = datetime(2026, 1, 31, tzinfo=UTC)
USER = {
    "user_email": "ann@corp.example",
    "directory_user_sam_account_name": "ann",
    "directory_user_surname": "Smith",
    "user_department": "IT",
    "criticality": "low",
}


def enriching(**fields):
    platform = instance_content()["platform"]
    return instance(platform={**platform, "contract": {"enrich_fields": fields}})


def host(fields, settings=None):
    """The record of a host, which is its row in the table as well."""
    rows = host_rows(settings or instance())
    record = rows.record("h-1", fields)
    assert rows.table(rows.read(["h-1"], [fields])).rows(named=True) == [record]
    return record


def user(fields, settings=None):
    rows = user_rows(settings or instance())
    record = rows.record("u-1", fields)
    assert rows.table(rows.read(["u-1"], [fields])).rows(named=True) == [record]
    return record


def test_a_host_is_its_names_owners_and_what_enrichment_writes():
    assert host(HOST) == {
        "host_id": "h-1",
        "hostnames": ["PC-1"],
        "owner_ids": ["u-1"],
        "department": "Sales",
        "criticality": "high",
        "problem": None,
    }


def test_a_user_is_the_fields_that_match_and_those_that_are_copied():
    assert user(USER, instance(platform_user_value_field="directory_user_surname")) == {
        "user_id": "u-1",
        "user_value": ["Smith"],
        "user_email": ["ann@corp.example"],
        "directory_user_sam_account_name": ["ann"],
        "directory_user_surname": ["Smith"],
        "user_department": "IT",
        "criticality": "low",
        "problem": None,
    }


def test_fields_are_those_that_the_instance_names():
    other = {"hostname": "PC-2", "owner": 7, **HOST}
    settings = instance(platform_hostname_field="hostname", platform_user_field="owner")
    record = host(other, settings)
    assert (record["hostnames"], record["owner_ids"]) == (["PC-2"], ["7"])
    record = host({**HOST, "user_department": "R&D"}, enriching(user_department="user_department"))
    assert record["department"] == "R&D"
    record = host(HOST, enriching(user_department=None, criticality=None))
    assert (record["department"], record["criticality"]) == (None, None)


@pytest.mark.parametrize("nothing", [None, "", [], [None], ["", None]])
def test_nothing_is_said_in_many_ways(nothing):
    nobody = {"host_id": "h-1", "hostnames": [], "owner_ids": []}
    expected = nobody | dict.fromkeys(("department", "criticality", "problem"))
    assert host(dict.fromkeys(HOST, nothing)) == host({}) == expected
    assert user(dict.fromkeys(USER, nothing)) == user({})


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("FS03", ["FS03"]),
        (["FS03", "", "fs03.corp"], ["FS03", "fs03.corp"]),
        (4711, ["4711"]),
        ([1, "b"], ["1", "b"]),
    ],
)
def test_names_and_ids_come_as_text_one_or_several(value, kept):
    record = host({**HOST, "search_agent_name": value, "asset_owner": value})
    assert (record["hostnames"], record["owner_ids"]) == (kept, kept)
    assert user({**USER, "directory_user_surname": value})["directory_user_surname"] == kept


@pytest.mark.parametrize("value", [3, 3.5, ["3"], [3]])
def test_a_single_value_may_be_a_number_or_stand_in_a_list(value):
    text = "3.5" if value == 3.5 else "3"
    assert host({**HOST, "criticality": value})["criticality"] == text


def test_rows_are_the_records_of_their_assets_whatever_the_others_of_the_page_hold():
    odd = [{}, HOST, {**HOST, "asset_owner": ["u-1", 2], "criticality": [1]}, dict.fromkeys(HOST, "")]
    rows = host_rows(instance())
    pages = [rows.read([f"h-{size}-{n}" for n in range(size)], odd[:size]) for size in range(5)]
    expected = [rows.record(f"h-{size}-{n}", odd[n]) for size in range(5) for n in range(size)]
    assert rows.table(pl.concat(pages, how="diagonal")).rows(named=True) == expected


@pytest.mark.parametrize("hosts", [[], [HOST], [{**HOST, "asset_owner": ["u-1"], "search_agent_name": []}]])
@pytest.mark.parametrize(("rows", "model"), [(host_rows, InventoryHosts), (user_rows, InventoryUsers)])
def test_rows_have_the_types_of_their_table(hosts, rows, model):
    rows = rows(instance())
    table = rows.table(rows.read([str(number) for number in range(len(hosts))], hosts))
    assert table.with_columns(listed_at=NOW).schema == polars_schema(model)


COLUMNS = {"asset_owner": "owner_ids", "search_agent_name": "hostnames"}
"""Columns of inventory_hosts that are not called like the field."""


@pytest.mark.parametrize("wrong", [{"id": "u-1"}, True, [["u-1"]], [{"id": "u-1"}, "u-2"], [[10**40]]])
@pytest.mark.parametrize(
    ("field", "remedy"),
    [
        ("asset_owner", "platform_user_field must name a field of text"),
        ("search_agent_name", "platform_hostname_field must name a field of text"),
        ("department", "platform.contract.enrich_fields.user_department must name a field of text"),
        ("criticality", "platform.contract.enrich_fields.criticality must name a field of text"),
    ],
)
def test_a_host_field_of_another_type_is_null_and_the_problem_names_field_and_remedy(field, remedy, wrong):
    rows, odd = host_rows(instance()), {**HOST, field: wrong}
    with pytest.raises(ProtocolError) as raised:
        rows.record("h-1", odd)
    problem = f"its field {field} holds a {type(wrong).__name__}, which is not usable; {remedy}"
    assert str(raised.value) == f"Asset h-1: {problem}"
    pages = [rows.read(["h-0", "h-1"], [HOST, odd]), rows.read(["h-2"], [HOST]), rows.read(["h-3"], [odd])]
    sound = rows.record("h-1", HOST)
    unread = {COLUMNS.get(field, field): None, "problem": problem}
    assert rows.table(pl.concat(pages, how="diagonal")).rows(named=True) == [
        sound | {"host_id": "h-0"},
        sound | unread,
        sound | {"host_id": "h-2"},
        sound | unread | {"host_id": "h-3"},
    ]


@pytest.mark.parametrize("fields", [None, [], "x"])
def test_an_asset_without_fields_cannot_be_read_and_nothing_of_it_is_known(fields):
    rows = host_rows(instance())
    _, odd = rows.table(rows.read(["h-1", "h-2"], [HOST, fields])).rows(named=True)
    problem = "it has no fields where platform.contract.fields_in says they are"
    assert odd == {"host_id": "h-2", "problem": problem} | dict.fromkeys(
        ("hostnames", "owner_ids", "department", "criticality")
    )


def test_each_field_that_cannot_be_read_is_named_and_no_value_shown():
    rows = user_rows(instance())
    odd = {**USER, "user_email": {"secret": "hunter2"}, "user_department": ["hunter2", "b"]}
    (row,) = rows.table(rows.read(["u-1"], [odd])).rows(named=True)
    assert (row["user_email"], row["user_department"], row["directory_user_surname"]) == (
        None,
        None,
        ["Smith"],
    )
    assert "its field user_email holds a dict" in row["problem"]
    assert "its field user_department holds a list" in row["problem"]
    assert "hunter2" not in row["problem"]


@pytest.mark.parametrize("field", ["user_email", "directory_user_surname", "user_department", "criticality"])
def test_a_user_field_of_another_type_names_asset_and_field(field):
    with pytest.raises(ProtocolError, match=f"Asset u-1: its field {field} holds a dict"):
        user({**USER, field: {"value": "x"}})


def test_a_value_field_of_another_type_names_its_setting():
    settings = instance(platform_user_value_field="login")
    with pytest.raises(ProtocolError, match="platform_user_value_field must name a field of text"):
        user({**USER, "login": {"value": "x"}}, settings)


@pytest.mark.parametrize("field", ["department", "criticality"])
def test_several_values_where_one_is_written_are_refused(field):
    with pytest.raises(ProtocolError, match=f"Asset h-1: its field {field} holds a list"):
        host({**HOST, field: ["a", "b"]})


@pytest.mark.parametrize(
    ("value", "owners"),
    [
        (None, []),
        ("", []),
        ([], []),
        ([None, ""], []),
        ("u1", ["u1"]),
        (7, ["7"]),
        (0, ["0"]),
        (["u1"], ["u1"]),
        (["u1", None, 2], ["u1", "2"]),
    ],
)
def test_no_owner_is_null_empty_or_an_empty_list(value, owners):
    assert owner_ids(value) == owners


@pytest.mark.parametrize("value", [True, 1.5, {"id": "u1"}, [["u1"]], [{"id": "u1"}]])
def test_an_owner_that_is_no_id_is_refused(value):
    with pytest.raises(TypeError, match="an owner is an id or a list of ids, not"):
        owner_ids(value)
