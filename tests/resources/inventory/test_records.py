import pytest

from resources.inventory.records import host_form, host_rows, user_rows
from tests.resources.samples import instance, instance_content

HOST = {
    "search_agent_name": "PC-1",
    "asset_owner": "u-1",
    "department": "Sales",
    "criticality": "high",
    "os": {"name": "Windows"},
}
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


def row(rows, item):
    """The record of an item, which is its row in the table as well."""
    record = rows.record("x-1", item)
    assert rows.table(["x-1"], [item]).rows(named=True) == [record]
    return record


def host(item, settings=None):
    return row(host_rows(settings or instance()), item)


def user(item, settings=None):
    return row(user_rows(settings or instance()), item)


def test_a_host_is_its_names_owners_and_what_enrichment_writes():
    assert host(HOST) == {
        "host_id": "x-1",
        "hostnames": ["PC-1"],
        "owner_ids": ["u-1"],
        "department": "Sales",
        "criticality": "high",
        "problem": None,
        "listed_values": [],
    }


def test_a_user_is_the_fields_that_match_and_those_that_are_copied():
    assert user(USER, instance(platform_user_value_field="directory_user_surname")) == {
        "user_id": "x-1",
        "user_value": ["Smith"],
        "user_email": ["ann@corp.example"],
        "directory_user_sam_account_name": ["ann"],
        "directory_user_surname": ["Smith"],
        "user_department": "IT",
        "criticality": "low",
        "problem": None,
        "listed_values": [],
    }


def test_an_inventory_that_lists_the_same_owners_in_another_order_changes_nothing():
    """An acknowledged conflict would be open again; the first of the names is the one that is shown."""
    one, other = (
        host({"asset_owner": ids, "search_agent_name": ids}) for ids in (["u9", "u8"], ["u8", "u9"])
    )
    assert (one["owner_ids"], one["hostnames"]) == (other["owner_ids"], ["u9", "u8"])


def test_fields_are_those_that_the_instance_names():
    settings = instance(platform_hostname_field="hostname", platform_user_field="owner")
    record = host({"hostname": "PC-2", "owner": 7, **HOST}, settings)
    assert (record["hostnames"], record["owner_ids"]) == (["PC-2"], ["7"])
    assert host_form(settings, {"owner": "u-1", "department": None}) == {"owner": "u-1", "department": ""}
    record = host({**HOST, "user_department": "R&D"}, enriching(user_department="user_department"))
    assert record["department"] == "R&D"
    record = host(HOST, enriching(user_department=None, criticality=None))
    assert (record["department"], record["criticality"]) == (None, None)


def test_a_field_of_a_user_that_is_not_copied_may_hold_anything():
    """Otherwise nobody could be matched where a service has an object there."""
    odd = {**USER, "criticality": {"id": 3, "name": "low"}}
    assert "enrich_fields.criticality must name a field of text" in user(odd)["problem"]
    settings = enriching(criticality=None)
    assert user(odd, settings) == user(USER, settings)
    assert user(odd, settings)["user_department"] == "IT"


@pytest.mark.parametrize("nothing", [None, "", [], [None], ["", None]])
def test_nothing_is_said_in_many_ways(nothing):
    nobody = {"host_id": "x-1", "hostnames": [], "owner_ids": [], "listed_values": []}
    expected = nobody | dict.fromkeys(("department", "criticality", "problem"))
    assert host(dict.fromkeys(HOST, nothing)) == host({}) == expected
    assert user(dict.fromkeys(USER, nothing)) == user({})


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("FS03", ["FS03"]),
        (["FS03", "", "fs03.corp", None], ["FS03", "fs03.corp"]),
        (4711, ["4711"]),
        (0, ["0"]),
        ([1, "b"], ["1", "b"]),
        ([3], ["3"]),
        ('a\0"\u2028\N{GRINNING FACE}', ['a\0"\u2028\N{GRINNING FACE}']),
    ],
)
def test_names_and_ids_come_as_text_one_or_several(value, kept):
    record = host({**HOST, "search_agent_name": value, "asset_owner": value})
    assert (record["hostnames"], record["owner_ids"]) == (kept, kept)
    assert user({**USER, "directory_user_surname": value})["directory_user_surname"] == kept
    assert host({**HOST, "criticality": value})["criticality"] == (kept[0] if len(kept) == 1 else None)


@pytest.mark.parametrize("assets", [[], [{}, HOST, {**HOST, "asset_owner": ["u-1", 2]}, None]])
def test_rows_are_the_records_of_their_assets_whatever_the_others_of_the_page_hold(assets):
    rows, ids = host_rows(instance()), [f"h-{number}" for number in range(len(assets))]
    table = rows.table(ids, assets)
    assert table.rows(named=True) == [rows.record(*one) for one in zip(ids, assets, strict=True)]
    assert table.schema == rows.table(["h"], [HOST]).schema


@pytest.mark.parametrize("wrong", [{"id": "hunter2"}, True, [["u-1"]], [{"id": "u-1"}, "u-2"]])
@pytest.mark.parametrize(
    ("field", "column", "setting"),
    [
        ("asset_owner", "owner_ids", "platform_user_field"),
        ("search_agent_name", "hostnames", "platform_hostname_field"),
        ("department", "department", "platform.contract.enrich_fields.user_department"),
        ("criticality", "criticality", "platform.contract.enrich_fields.criticality"),
    ],
)
def test_a_host_field_of_another_type_is_null_and_the_problem_names_field_and_setting(
    field, column, setting, wrong
):
    odd = host({**HOST, field: wrong})
    problem = odd["problem"]
    assert odd == host(HOST) | {column: None, "problem": problem}
    assert field in problem
    assert setting in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize("field", [*USER, "login"])
def test_a_user_field_of_another_type_is_named_and_the_others_read(field):
    settings = instance(platform_user_value_field="login")
    odd = user({**USER, "login": "ann", field: {"value": "hunter2"}}, settings)
    assert field in odd["problem"]
    assert ("platform_user_value_field" in odd["problem"]) == (field == "login")
    assert "hunter2" not in str(odd)
    assert sum(value is None for value in odd.values()) == 1


LISTED_FIELDS = ("group", "tags.name", "managed", "os.build", "site.name")


@pytest.mark.parametrize(
    ("item", "listed"),
    [
        ({"group": "Kiosks", "fields": {"group": "else"}}, ["group: Kiosks"]),
        ({"fields": {"group": ["a", None, 7], "managed": False}}, ["group: a", "group: 7", "managed: false"]),
        ({"tags": [{"name": "lab"}, {"name": ["x", "y"]}, "no"], "site": {"name": "Bern"}},
         ["tags.name: lab", "tags.name: x", "tags.name: y", "site.name: Bern"]),
        ({"fields": {"os.build": 22631, "site": "Bern"}}, ["os.build: 22631"]),
        ({"group": {"name": "Kiosks"}}, None),
        ({"group": ["Sales", {"name": "Kiosks"}]}, None),
    ],
)  # fmt: skip
def test_values_that_may_exclude_an_asset_are_found_in_the_item_or_its_fields(item, listed):
    for rows, setting in ((host, "rules.exclude_assets"), (user, "rules.exclude_user_assets")):
        platform = {**instance_content()["platform"], "contract": {"fields_in": "fields"}}
        named = {"rules": {setting.partition(".")[2]: {name: ["x"] for name in LISTED_FIELDS}}}
        settings = instance(**named)
        record = rows({"fields": {}} | item, instance(**named, platform=platform))
        assert record["listed_values"] == listed
        if "fields" not in item:  # another inventory's assets have no such member
            assert rows(item, settings)["listed_values"] == listed
            assert rows(item | {"listed values": []}, settings)["listed_values"] == listed
        assert (listed is None) == (
            record["problem"] is not None and f"{setting} (group, tags.name," in record["problem"]
        )


@pytest.mark.parametrize("fields", [None, [], "x"])
def test_of_an_asset_without_fields_nothing_is_known(fields):
    odd = host(fields)
    assert "fields_in" in odd.pop("problem")
    assert odd == {"host_id": "x-1"} | dict.fromkeys(
        ("hostnames", "owner_ids", "department", "criticality", "listed_values")
    )
