import json
import math
import os
import re
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from ownership.rules import Rules
from resources.errors import ConfigurationError
from resources.search.source import extraction_fingerprint
from resources.settings import (
    BrokenInstance,
    Instance,
    home,
    instances_folder,
    load_instance,
    load_instances,
)
from tests.resources.samples import instance, instance_content

REQUIRED = ["name", "url", "username", "password", "sensor"] + [
    f"platform.{key}" for key in ("url", "email", "password", "tenant_id")
]


def nested(changes: dict[str, Any]) -> dict[str, Any]:
    """What an instance file holds, with changes by dotted key."""
    content = instance_content()
    for key, value in changes.items():
        place = content
        *sections, name = key.split(".")
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return content


@pytest.fixture
def write(tmp_path):
    """Writes an instance file: text as it is, or changes by dotted key."""

    def write_file(text: str | None = None, /, *, file: str = "instance.yaml", **changes: Any) -> Path:
        path = tmp_path / file
        text = yaml.safe_dump(nested(changes), allow_unicode=True) if text is None else text
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def complaint(path: Path) -> str:
    """What is said about a file, without its name, which every line begins with."""
    with pytest.raises(ConfigurationError) as raised:
        load_instance(path)
    lines = str(raised.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    return "\n".join(line.removeprefix(f"{path}: ") for line in lines)


# Requirements, and what is kept


@pytest.mark.parametrize("key", [*REQUIRED, "platform"])
def test_a_required_key_that_is_missing_is_named(write, key):
    content = instance_content()
    *section, name = key.split(".")
    del (content[section[0]] if section else content)[name]
    assert complaint(write(yaml.safe_dump(content))).startswith(f"{key}: is missing")


def test_what_the_file_says_is_kept(write):
    changes = {
        "platform.contract.read": None,
        "platform.contract.hosts": {"path": "/hosts", "params": {"kind": 7}},
        "platform.contract.enrich_fields": {"user_department": "user_department"},
        "platform.tenant_id": 42,
        "rules.exclude_users": ["*$", "svc?"],
        "scan.schedule": None,
        "scan.first_day": date(2015, 1, 1),
        "url": "https://search.example/prefix/",
    }
    settings = load_instance(write(**changes))
    contract = settings.platform.contract
    assert contract.read is None
    assert (contract.hosts.path, contract.hosts.params) == ("/hosts", {"kind": "7"})
    assert contract.users.path == "/api/v1/assets/list"
    assert contract.enrich_fields.user_department == "user_department"
    assert contract.enrich_fields.criticality == "criticality"
    assert settings.platform.tenant_id == "42"
    assert settings.rules.as_rules() == Rules(exclude_users=("*$", "svc?"))
    assert (settings.scan.schedule, settings.scan.first_day) == (None, date(2015, 1, 1))
    assert settings.url == "https://search.example/prefix"


def test_kinds_of_logon_may_be_numbers_or_words(write):
    weights = {2: 10, "Unlock": 5}
    settings = load_instance(
        write(logon_type_field="winlog.logon.type", **{"rules.logon_type_weights": weights})
    )
    assert settings.rules.as_rules() == Rules(logon_type_weights={"2": 10, "Unlock": 5})


# Wrong keys and values


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("hostname_feild", "hostname_field"),
        ("passwort", "password"),
        ("scan.lookback", "lookback_days"),
        ("platform.contract.enrich_fields.department", "user_department"),
        ("platform.contract.mfa_required.membr", "member"),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(write, key, nearest):
    expected = f"{key}: is an unknown key; the nearest known one is {nearest!r}"
    assert complaint(write(**{key: "x"})) == expected


@pytest.mark.parametrize(
    ("key", "wrong", "says"),
    [
        ("url", "search:9200", "is not an address"),
        ("url", "https://search:99999", "is not an address"),
        ("url", "https://search/?x=1", "has a query or fragment"),
        ("platform.url", "inventory", "is not an address"),
        ("scan.timezone", "Berlin", "'Berlin' is no time zone"),
        ("scan.schedule", "daily", "'daily' is no cron expression"),
        ("scan.schedule", "0 0 5 * * *", "'0 0 5 * * *' is no cron expression"),
        ("scan.first_day", "soon", "'soon' should be a valid date"),
        ("scan.enrich", "maybe", "'maybe' should be a valid boolean"),
        ("writes.max_writes", True, "True must be a number"),  # YAML reads yes and on as true
        ("writes.max_write_percent", True, "True must be a number"),
        ("rules.hostname_match", "fuzzy", "'fuzzy' should be 'exact' or 'short'"),
        ("rules.exclude_users", "svc_*", "'svc_*' should be a list"),
        ("rules.exclude_users", ["svc_*", ""], "'' should have at least 1 character"),
        ("scan.first_day", "1969-12-31", "'1969-12-31' should be greater than or equal to 1970-01-01"),
        ("scan.first_day", "9999-12-31", "'9999-12-31' should be less than or equal to 2999-12-31"),
        ("rules.exclude_users", ["?" * 200_000], f"'{'?' * 199}… should have at most 1000 characters"),
        ("index", "?" * 200_000, f"'{'?' * 199}… should have at most 1000 characters"),
        (
            "platform.url",
            "https://inventory/api/v1",
            "is the address of the service itself; write it without",
        ),
        ("platform.url", "https://inventory/p/api/v1/", "is the address of the service itself; write it"),
        ("url", f"https://search/{'a' * 1000}", "is longer than any address"),
        ("query", "{term: x}", "'{term: x}' starts with { and is no JSON"),
        ("query", '{"n": NaN}', "'{\"n\": NaN}' starts with { and is no JSON"),
        ("query", {"range": {"n": {"gt": math.inf}}}, "holds a number that JSON does not know"),
        ("platform.contract.mfa_required.equals", [1], "must be true, false, a whole number or text"),
        ("scan", None, "must hold keys of its own"),
        ("platform", "https://inventory", "must hold keys of its own"),
        ("name", "---", "'---' gives no usable identifier"),
        ("name", "Main", "'Main' gives no usable identifier"),  # names of DuckDB's own schemas
        ("name", "Warehouse", "'Warehouse' gives no usable identifier"),  # and of a session's databases
        ("name", "Config", "'Config' gives no usable identifier"),  # words that Dagster keeps for itself
        ("name", "a" * 300, f"'{'a' * 199}… should have at most 200 characters"),
        ("name", "東" * 99, f"'{'東' * 99}' gives an identifier of 494 letters"),
    ],
)
def test_a_wrong_value_is_told_with_key_value_and_remedy(write, key, wrong, says):
    message = complaint(write(**{key: wrong}))
    place, _, rest = message.partition(": ")
    assert place.rstrip(".012") == key  # an item of a list is named by its number
    assert rest.startswith(says)


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("scan.lookback_days", 0),
        ("scan.lookback_days", "month"),
        ("scan.late_days", -1),
        ("rules.share_threshold_percent", 49),
        ("rules.share_threshold_percent", 100),
        ("rules.share_threshold_percent", 66.6),
        ("writes.max_write_percent", 0),
        ("writes.max_failed_writes", 0),
        ("writes.plan_days", 0),
        ("writes.concurrency", 100),
        ("keep.history_days", 0),
        ("platform.contract.page_size", 0),
        ("platform.contract.page_size", False),
        ("query", 4624),
        ("query", ""),
        ("sensor", None),
        ("keep.evidence_days", 999_999),  # none leads out of the calendar
        ("keep.history_days", 999_999),
        ("writes.plan_days", 999_999),
    ],
)
def test_a_value_of_another_kind_or_beyond_the_bounds_is_refused(write, key, wrong):
    assert complaint(write(**{key: wrong})).startswith(f"{key}: ")


def test_a_wrong_key_of_a_setting_is_told_with_the_setting_alone(write):
    changes = {"logon_type_field": "winlog.logon.type", "rules.logon_type_weights": {"": 2}}
    assert complaint(write(**changes)) == (
        "rules.logon_type_weights: the key '' should have at least 1 character"
    )


@pytest.mark.parametrize("weight", [0, 1001, 2.5, "many", None])
def test_a_weight_is_a_whole_number_from_1_to_1000(write, weight):
    changes = {"logon_type_field": "winlog.logon.type", "rules.logon_type_weights": {"Interactive": weight}}
    assert complaint(write(**changes)).startswith("rules.logon_type_weights.Interactive: ")


def test_weights_without_the_field_that_they_need_name_both_settings(write):
    said = complaint(write(**{"rules.logon_type_weights": {2: 10}}))
    assert said.startswith(
        "rules.logon_type_weights: needs logon_type_field, which is not set; name there the"
    )


def test_all_that_is_wrong_is_told_at_once(write):
    message = complaint(write(indx="logs-*", **{"scan.lookback_days": 0, "password": "hunter2"}))
    assert sorted(line.partition(":")[0] for line in message.splitlines()) == [
        "indx",
        "password",
        "scan.lookback_days",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: a\nurl: b\nname: c", "line 3, column 1: is no usable YAML: the key name is written twice"),
        ("scan:\n  enrich: true\n  enrich: false", "line 3, column 3: "),
        ("name: a: b", "line 1, column 8: "),
        ("scan:\n  first_day: 2026-02-30", "is no usable YAML: day is out of range for month"),
        ("tags: [a", "line 1, column 9: "),
        ("name: *other", "line 1, column 7: is no usable YAML: found undefined alias …"),
        ('name: !!float "<a secret>"', "is no usable YAML: could not convert string to float: …"),
        ("", "must hold `key: value` lines"),
        ("- name", "must hold `key: value` lines"),
    ],
)
def test_a_file_that_is_no_mapping_is_told_with_its_place(write, text, says):
    assert complaint(write(text)).startswith(says)


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    assert "cannot be read" in complaint(tmp_path / "nowhere.yaml")
    (tmp_path / "latin.yaml").write_bytes("name: Büro".encode("latin-1"))
    assert "cannot be read" in complaint(tmp_path / "latin.yaml")


NINEFOLD = {name: ",".join([f"*{before}"] * 9) for before, name in pairwise("abcdefghi")}


@pytest.mark.timeout(30)  # each takes a fraction of a second, and would take minutes without bounds
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 100_000, "is no usable YAML"),
        ('query: \'{"a": ' + "[" * 100_000 + "'", "starts with { and is no JSON"),
        ("a: 1\n" * 100_000, "it holds more than 262,144 characters"),
        (f"scan: {{lookback_days: {'9' * 5_000}}}", "is no usable YAML"),
        ("query: !!int ''", "a value does not fit its tag"),
        ("a: &a [x]\n" + "".join(f"{a}: &{a} [{nine}]\n" for a, nine in NINEFOLD.items()), "20,000 values"),
        (
            "a: &a {x: 1}\n" + "".join(f"{a}: &{a} {{<<: [{m}]}}\n" for a, m in NINEFOLD.items()),
            "20,000 values",
        ),
        ("query: &q {bool: *q}", "query: "),
        ("rules:\n  exclude_users:\n" + "  - 1\n" * 9_000, "and 8,986 more"),
    ],
    ids=["deep", "deep query", "large", "digits", "tag", "aliases", "merges", "in itself", "many"],
)
def test_a_file_of_too_much_is_told_and_keeps_no_other_from_loading(write, tmp_path, text, says):
    write()
    write(text, file="much.yaml")
    good, much = load_instances(tmp_path)
    assert isinstance(good, Instance)
    assert isinstance(much, BrokenInstance)
    assert says in much.message


@pytest.mark.timeout(30)
def test_what_is_no_regular_file_is_told_and_keeps_no_other_from_loading(write, tmp_path):
    write()
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    (tmp_path / "folder.yaml").mkdir()
    write(**{"name": "Another", "platform.contract": "pipe.yaml"}, file="z.yaml")
    folder, good, *broken = load_instances(tmp_path)
    assert isinstance(good, Instance)
    for each in (folder, *broken):
        assert isinstance(each, BrokenInstance)
        assert "cannot be read: it is no regular file" in each.message


# Secrets


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("password", "hunter2"),
        ("password", 42),
        ("password", None),
        ("password", ["hunter2"]),
        ("password", {"hunter2": None}),
        ("password", {"vault": "hunter2"}),
        ("password", {"env": "A", "vault": "hunter2"}),
        ("password", {"env": None}),
        ("password", {}),
        ("platform.password", "hunter2"),
        ("platform.mfa_secret", "hunter2"),
        ("cookies.session", "hunter2"),
    ],
)
def test_a_secret_in_clear_text_is_refused_with_how_to_write_it(write, key, wrong):
    assert complaint(write(**{key: wrong})) == (
        f"{key}: is not a secret's place; write {{env: VARIABLE}} or {{file: PATH}}, never the secret"
    )


def test_of_two_places_of_a_secret_one_is_to_be_kept(write):
    told = complaint(write(password={"env": "A", "file": "hunter2"}))
    assert told == "password: names two places; keep env or file, the one that holds the secret"


@pytest.mark.parametrize(
    "name", ["two\nlines", "a=hunter2", "a b", "", "a;b", "\x00", "\u00e9", "a,b", '"a"', "a\n", "a@b", 1]
)
def test_a_cookie_has_a_name_that_a_header_can_carry_and_others_are_not_shown(write, name):
    assert complaint(write(cookies={"1st": {"env": "A"}, name: {"env": "A"}})) in {
        f"cookies: the name of cookie {number} may have letters, digits and !#$%&'*+-.^_`|~ only; "
        "write beside it where its value lies"
        for number in (1, 2)  # YAML is written sorted
    }


def test_a_cookie_may_be_named_as_the_standard_says(write):
    names = ["__Host-session", "a.b", "x!#$%&'*+-.^_`|~9"]
    assert list(load_instance(write(cookies={name: {"env": "A"} for name in names})).cookies) == names


@pytest.mark.parametrize(
    "text",
    [
        "cookies: session=hunter2",
        "cookies: {1: hunter2}",
        "cookies: [hunter2]",
        "url: https://elastic:hunter2@search:9200",
        "url: https://elastic:hunter2@[search:9200",
        "url: https://elastic:hunter2@se\u2100rch:9200",
        "platform: {url: 'https://hunter2@[search'}",
        "platform: {password: hunter2, paswd: hunter2}",
        "platform: 'password: hunter2'",
        "platform: [password: hunter2]",
        "passwd: hunter2",
        # Lines that YAML cannot read are quoted by its messages.
        "password: @hunter2",
        "password: *hunter2",
        "password: !hunter2",
        "password: a: hunter2",
        'password: "\\qhunter2"',
        "password: 'hunter2",
    ],
)
def test_a_secret_in_the_wrong_place_is_never_shown(write, text):
    with pytest.raises(ConfigurationError) as raised:
        load_instance(write(text))
    chain: BaseException | None = raised.value
    while chain is not None:
        assert "hunter2" not in str(chain)
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_secret_is_read_from_its_variable(monkeypatch, ending):
    monkeypatch.setenv("SEARCH_PASSWORD", f" pass wörd {ending}")
    settings = instance()
    assert settings.password.resolve("password") == " pass wörd "
    assert "pass wörd" not in repr(settings) + settings.model_dump_json()


@pytest.mark.timeout(30)
def test_a_secret_is_read_from_a_regular_file_alone(write, tmp_path):
    os.mkfifo(tmp_path / "password")
    settings = load_instance(write(password={"file": "password"}))
    with pytest.raises(ConfigurationError, match="password cannot be read: it is no regular file"):
        settings.password.resolve("password")


@pytest.mark.parametrize(
    ("content", "secret"), [("hunter2", "hunter2"), (" a b \r\n", " a b "), ("two\nlines\n\n", "two\nlines")]
)
def test_a_secret_is_read_from_its_file_beside_the_instance_file(write, tmp_path, content, secret):
    (tmp_path / "password").write_bytes(content.encode())
    settings = load_instance(write(password={"file": "password"}))
    assert settings.password.resolve("password") == secret


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (
            {"env": "SEARCH_PASSWORD"},
            "password: the environment variable SEARCH_PASSWORD is not set; export it",
        ),
        ({"file": "nowhere"}, "nowhere cannot be read"),
        ({"file": "empty"}, "empty is empty; write the secret into it"),
        ({"file": "binary"}, "binary cannot be read"),
    ],
)
@pytest.mark.parametrize("variable", [None, "", "\n"])
def test_a_secret_that_is_not_there_is_told_when_it_is_needed(
    write, tmp_path, monkeypatch, place, says, variable
):
    monkeypatch.delenv("SEARCH_PASSWORD", raising=False)
    if variable is not None:
        monkeypatch.setenv("SEARCH_PASSWORD", variable)
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    settings = load_instance(write(password=place))
    with pytest.raises(ConfigurationError, match=r"^password: ") as raised:
        settings.password.resolve("password")
    assert says in str(raised.value)


# Paths


def test_paths_are_relative_to_the_file_that_names_them(write, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    places = {"ca_file": "certs/ca.pem", "platform.ca_file": "/etc/ca.pem", "cookies.a": {"file": "~/cookie"}}
    settings = load_instance(write(**places))
    assert settings.ca_file == tmp_path / "certs" / "ca.pem"
    assert settings.platform.ca_file == Path("/etc/ca.pem")
    assert settings.cookies["a"].file == Path("/home/ann/cookie")
    monkeypatch.chdir(tmp_path)
    assert load_instance(Path("instance.yaml")).ca_file == settings.ca_file


@pytest.mark.parametrize("part", ["q?x", "p%41x", "b\\x"])
def test_a_home_that_databases_misread_is_refused_by_name(monkeypatch, part):
    monkeypatch.setenv("ASSET_OWNERS_HOME", f"/srv/{part}/home")
    with pytest.raises(ConfigurationError, match="ASSET_OWNERS_HOME: the path /srv/"):
        home()


def test_home_and_instances_folder_come_from_the_environment(tmp_path, monkeypatch):
    for name in ("ASSET_OWNERS_HOME", "ASSET_OWNERS_INSTANCES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert (home(), instances_folder()) == (tmp_path / "var", tmp_path / "var" / "instances")
    monkeypatch.setenv("ASSET_OWNERS_HOME", "state")
    assert (home(), instances_folder()) == (tmp_path / "state", tmp_path / "state" / "instances")
    monkeypatch.setenv("ASSET_OWNERS_INSTANCES", "/etc/owners")
    assert instances_folder() == Path("/etc/owners")


# The contract in a file of its own


def test_the_contract_may_lie_in_a_file_of_its_own(write, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "contract.yaml").write_text("read:\nhosts: {path: /hosts}\n")
    contract = load_instance(write(**{"platform.contract": "shared/contract.yaml"})).platform.contract
    assert (contract.read, contract.hosts.path, contract.tenant_param) == (None, "/hosts", "tenant_id")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "the file cannot be read"),
        ("- hosts", "must hold `key: value` lines, such as tenant_param and mfa_required"),
        ("hosts: {pth: /hosts}", "hosts.pth: is an unknown key; the nearest known one is 'path'"),
        ("page_size: many", "page_size: 'many' should be a valid integer"),
        (
            "page_size: 1\npage_size: 2",
            "line 2, column 1: is no usable YAML: the key page_size is written twice",
        ),
    ],
)
def test_what_is_wrong_with_the_contracts_file_names_that_file(write, tmp_path, text, says):
    contract = tmp_path / "contract.yaml"
    if text is not None:
        contract.write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        load_instance(write(**{"platform.contract": "contract.yaml"}))
    assert says in str(raised.value)
    assert all(line.startswith(f"{contract}: ") for line in str(raised.value).splitlines())


# The query


def test_a_query_may_be_query_dsl_in_yaml(write):
    path = write(
        yaml.safe_dump(instance_content()) + "query:\n  bool:\n    must_not:\n"
        "      - range: {'@timestamp': {lt: 2026-01-31}}\n      - term: {event.code: 4624}\n"
    )
    assert json.loads(load_instance(path).query) == {
        "bool": {
            "must_not": [{"range": {"@timestamp": {"lt": "2026-01-31"}}}, {"term": {"event.code": 4624}}]
        }
    }


# Names, and several files


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Windows logons", "windows_logons"),
        ("Büro Köln / 東京", "buro_koln_dong_jing"),
        ("  A--b__C  ", "a_b_c"),
        ("2026", "2026"),
        ("Robert'); DROP TABLE", "robert_drop_table"),
        ("../../etc", "etc"),
    ],
)
def test_a_name_gives_an_identifier(name, slug):
    assert instance(name=name).slug == slug


def test_one_broken_file_does_not_hide_the_others(write, tmp_path):
    write(file="good.yaml")
    write("url: [", file="broken.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "notes.txt").write_text("not an instance file")
    broken, folder, good = load_instances(tmp_path)
    assert isinstance(good, Instance)
    for found, stem in ((broken, "broken"), (folder, "folder")):
        assert isinstance(found, BrokenInstance)
        assert (found.path, found.slug) == (tmp_path / f"{stem}.yaml", stem)
        assert found.message.startswith(str(found.path))


def test_a_folder_that_does_not_exist_holds_no_instances(tmp_path):
    assert load_instances(tmp_path / "nowhere") == []


def instance_file(folder: Path, file: str, name: str) -> None:
    (folder / file).write_text(yaml.safe_dump(instance_content(name=name)))


def test_two_files_of_one_identifier_are_both_refused(tmp_path):
    instance_file(tmp_path, "a.yaml", "Windows logons")
    instance_file(tmp_path, "b.yml", "windows-LOGONS")
    instance_file(tmp_path, "c.yaml", "Linux logons")
    first, second, third = load_instances(tmp_path)
    assert isinstance(first, BrokenInstance)
    assert isinstance(second, BrokenInstance)
    assert isinstance(third, Instance)
    assert "b.yml; give each instance its own name" in first.message
    assert "'windows_logons', as does" in second.message


def test_broken_files_never_share_an_identifier(tmp_path):
    """Their jobs would, and Dagster then loads nothing at all."""
    instance_file(tmp_path, "good.yaml", "Corp")
    for file in ("corp.yaml", "corp.yml", "CORP.yaml", "!.yaml"):
        (tmp_path / file).write_text("broken")
    found = load_instances(tmp_path)
    good = [one for one in found if isinstance(one, Instance)]
    assert [one.slug for one in good] == ["corp"], "a broken file takes no good one's name"
    assert len({one.slug for one in found}) == len(found) == 5
    assert all(one.slug.replace("_", "").isalnum() for one in found)


# What a day was counted with


def test_the_extraction_fingerprint_changes_exactly_with_what_is_counted():
    other: dict[str, Any] = {
        "name": "Other",
        "url": "https://other.example:9200",
        "username": "other",
        "password": {"env": "OTHER"},
        "cookies": {"a": {"env": "OTHER"}},
        "index": "winlogbeat-*",
        "query": "event.code:4625",
        "user_field": "winlog.user",
        "hostname_field": "host.name",
        "time_field": "event.created",
        "logon_type_field": "winlog.logon.type",
        "platform_hostname_field": "hostname",
        "platform_user_field": "owner",
        "platform_user_value_field": "login",
        "sensor": "other",
        "ignore_ssl": True,
        "ca_file": "ca.pem",
        "platform.url": "https://other.example",
        "scan.lookback_days": 7,
        "scan.enrich": False,
        "scan.timezone": "Europe/Berlin",
        "scan.first_day": "2021-01-01",
        "scan.late_days": 5,
        "scan.schedule": None,
        "scan.require_complete_window": True,
        "rules.share_threshold_percent": 75,
        "rules.exclude_users": ["x"],
        "writes.dry_run": True,
        "keep.evidence_days": 10,
    }
    assert {key.split(".")[0] for key in other} == set(Instance.model_fields)
    plain = extraction_fingerprint(Instance.model_validate(nested({})))
    changing = {
        key
        for key, value in other.items()
        if extraction_fingerprint(Instance.model_validate(nested({key: value}))) != plain
    }
    assert changing == {
        "url",
        "index",
        "query",
        "user_field",
        "hostname_field",
        "time_field",
        "logon_type_field",
        "scan.timezone",
    }
    swapped = instance(user_field="agent.name", hostname_field="user.name")
    assert extraction_fingerprint(swapped) != plain


def test_days_that_version_0_2_0_fetched_are_not_fetched_anew():
    assert extraction_fingerprint(instance()) == "b7b84b667a3067a9"  # as that version made it


@pytest.mark.parametrize("number", ["0042", "1:30", "4_2", "0x1f"])
def test_a_number_that_yaml_reads_as_another_one_stays_text(tmp_path, number):
    """The account of tenant 0042 would write into tenant 34."""
    file = tmp_path / "instance.yaml"
    text = yaml.safe_dump(instance_content())
    file.write_text(re.sub("tenant_id: .*", f"tenant_id: {number}", text))
    assert load_instance(file).platform.tenant_id == number


@pytest.mark.parametrize(
    "url",
    [
        "https://bob:hun/ter2@search:9200",
        "https://bob:hun#ter2@search:9200",
        "https://bob:hun?ter2@search:9200",
        "bob:hunter2@search:9200",
        "https://search/?token=hunter2",
        "https://bob:hunter2@search",
    ],
)
def test_an_address_that_is_refused_is_not_shown(write, url):
    for changes in ({"url": url}, {"platform.url": url}):
        with pytest.raises(ConfigurationError) as refused:
            load_instance(write(**changes))
        assert "url: " in str(refused.value)
        assert "hun" not in str(refused.value)


@pytest.mark.parametrize("path", ["@other.example/update", "//other.example/update", "update", ""])
def test_a_path_of_the_contract_leads_to_no_other_service(write, path):
    with pytest.raises(ConfigurationError, match=r"platform\.contract\.update\.path: "):
        load_instance(write(**{"platform.contract": {"update": {"path": path}}}))


@pytest.mark.parametrize(
    ("contract", "settings"),
    [
        ({"enrich_fields": {"user_department": "asset_owner"}}, "platform_user_field"),
        ({"enrich_fields": {"user_department": "x", "criticality": "x"}}, "enrich_fields.user_department"),
        ({"enrich_fields": {"criticality": "search_agent_name"}}, "platform_hostname_field"),
        ({"update": {"path": "/u", "id_param": "asset_owner"}}, "update.id_param"),
    ],
)
def test_no_two_settings_name_one_field_of_a_write(write, contract, settings):
    with pytest.raises(ConfigurationError, match="a write needs each by itself") as refused:
        load_instance(write(**{"platform.contract": contract}))
    assert settings in str(refused.value)
