"""Instance files: what is kept of them, what is refused, and with which key named."""

import gc
import json
import os
import pwd
import re
import shlex
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

from ownership.rules import Rules
from resources.errors import ConfigurationError
from resources.search.source import extraction_fingerprint
from resources.settings import (
    BrokenInstance,
    Instance,
    command_line,
    home,
    instances_folder,
    journal_url,
    load_instance,
    load_instances,
    system_user,
    tables_location,
    without_password,
)
from resources.settings.models import OneQuery, presets
from tests.resources.samples import TENANT, instance, instance_content


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


def test_settings_are_tried_without_changing_the_file(write):
    path = write()
    before = path.read_bytes()
    changes = ("rules.share_threshold_percent=80", "rules.exclude_users=[admin, 'svc_*']", "query=a:b=c")
    tried = load_instance(path, changes)
    assert (tried.rules.share_threshold_percent, tried.rules.exclude_users) == (80, ("admin", "svc_*"))
    assert (tried.query, tried.changes, path.read_bytes()) == ("a:b=c", changes, before)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("rules.share_threshold_percent", "is not SETTING=VALUE, such as rules.share"),
        ("rules..x=1", "is not SETTING=VALUE"),
        ("rules.share_treshold=70", "did you mean 'share_threshold_percent'?"),
        ("min_active_days=2", "min_active_days: unknown key; did you mean rules.min_active_days?"),
        ("colour=1", "colour: unknown key; known here are "),
        ("rules.share=70", "did you mean 'share_threshold_percent'?"),
        ("rules.query=x", "rules.query: unknown key; did you mean 'query'?"),
        ("rulez.min_events=2", "rulez: unknown key; did you mean 'rules'?"),
        ("rules.logon_type_weights={2: 3}", "rules.logon_type_weights: needs logon_type_field"),
        ("query.x=1", "query.x is not a setting"),
        ("rules.exclude_users=[", "rules.exclude_users: invalid YAML"),
        ("rules.exclude_users=[*$]", "rules.exclude_users: invalid YAML: put quotes around a value that"),
        ("platform.tenant_id=2", "platform.tenant_id says whose tables these are"),
        ("name=Other", "name says whose tables these are"),
    ],
)
def test_a_setting_that_is_tried_is_checked_as_the_file_is(write, change, says):
    with pytest.raises(ConfigurationError, match=f"^--set: .*{re.escape(says)}") as raised:
        load_instance(write(query="a:b"), [change])
    assert "without a #" not in str(raised.value)


def test_what_the_file_says_is_kept(write):
    changes = {
        "platform.contract.read": None,
        "platform.contract.hosts": {"path": "/hosts", "params": {"kind": 7}},
        "platform.contract.enrich_fields": {"user_department": "user_department"},
        "platform.tenant_id": 42,
        "index": " a-*, -b ,<c-{now/d}>\n",
        "rules.exclude_users": ["*$", "svc?"],
        "rules.domains": ["CORP", "corp.example", "Büro Nord"],
        "scan.schedule": None,
        "scan.first_day": date(2015, 1, 1),
        "url": "https://search.example/prefix/\n",  # as of `url: |`
        "query": {"bool": {"must_not": {"range": {"@timestamp": {"lt": date(2026, 1, 31)}}}}},
        "logon_type_field": "winlog.logon.type",
        "rules.logon_type_weights": {2: 10, "Unlock": 5},
    }
    settings = load_instance(write(name=" Büro--Köln / ../東京 ", **changes))
    assert settings.slug == "buro_koln_dong_jing"
    contract = settings.platform.contract
    assert contract.read is None
    assert (contract.hosts.path, contract.hosts.params) == ("/hosts", {"kind": "7"})
    assert contract.enrich_fields.user_department == "user_department"
    assert (settings.platform.tenant_id, settings.index) == ("42", "a-*,-b,<c-{now/d}>")
    weights = {"2": 10, "Unlock": 5}
    assert settings.rules.as_rules() == Rules(
        exclude_users=("*$", "svc?"),
        domains=("CORP", "corp.example", "Büro Nord"),
        logon_type_weights=weights,
    )
    assert (settings.scan.schedule, settings.scan.first_day) == (None, date(2015, 1, 1))
    assert settings.url == "https://search.example/prefix"
    assert json.loads(settings.query)["bool"]["must_not"]["range"] == {"@timestamp": {"lt": "2026-01-31"}}


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("url", "search:9200"),
        ("url", "https://*.example"),
        ("scan.timezone", "Berlin"),
        ("scan.schedule", "0 0 5 * * *"),
        ("scan.schedule", "0 5 31 4 *"),
        ("scan.schedule", "0 5 31 2,4,6 1"),
        ("scan.first_day", "9999-12-31"),
        ("rules.share_threshold_percent", 49),
        ("rules.share_threshold_percent", 66.6),
        ("query", "{term: x}"),
        ("name", "---"),
        ("name", "Main"),  # a schema of DuckDB's own
        ("name", "Config"),  # a word that Dagster keeps for itself
        ("name", "東" * 99),
        ("platform.contract.update.path", "@other.example/update"),  # leads to another service
        ("platform.contract.update.path", "//other.example/update"),
        ("platform.contract.enrich_fields.user_department", "asset_owner"),  # the platform_user_field
        ("platform.contract.enrich_fields.criticality", "department"),
        ("platform_user_field", "id"),  # the contract's id_param
    ],
)
def test_a_wrong_value_is_refused_by_its_key(write, key, wrong):
    assert complaint(write(**{key: wrong})).startswith(f"{key}: ")


@pytest.mark.parametrize(
    ("domain", "says"),
    [
        ("CORP\\", "write CORP"),
        (r"CORP\\", "write CORP"),
        ("*@corp.example", "write corp.example"),
        ("*.corp.example", "write corp.example"),
        ("corp.example.", "write corp.example"),
        ("corp.*", "write corp"),
        ("CO?P", "name each, without wildcards, or none to take all"),
        ("*", "or none to take all"),
        ("\\", "or none to take all"),
    ],
)
def test_a_domain_that_is_spelled_as_part_of_an_account_is_refused_with_the_right_spelling(
    write, domain, says
):
    said = complaint(write(**{"rules.domains": ["LAB", domain]}))
    assert said.startswith("rules.domains")
    assert said.endswith(says)


def test_all_that_is_wrong_or_missing_is_named_together(write):
    wrong = {
        "hostname_feild": ("x", "unknown key; did you mean 'hostname_field'?"),
        "scan.lookback": (7, "unknown key; did you mean 'lookback_days'?"),
        "platform.schedule": (
            "daily",
            "unknown key; did you mean scan.schedule? It belongs below a line `scan:` without a #",
        ),
        "platform.query": ("*", "unknown key; the known key of this name is not indented"),
        "scan.lookback_days": (0, "'0' must be at least 1"),
        "scan.late_days": ("2d", "'2d' is not a whole number"),
        "scan.first_day": (20260105, "is not a day; write it as 2026-01-31"),
        "keep.evidence_days": (True, "'True' is not a number: YAML reads yes"),
        "writes.max_writes": (False, "'False' is not a number: YAML reads yes"),
        "username": (1234, "'1234' must be one text; put quotes around a number"),
        "rules.exclude_users": ("admin", "'admin' must be a list, such as [admin]"),
        "password": ("hunter2", ""),
    }
    content = nested({key: value for key, (value, _) in wrong.items()})
    del content["sensor"], content["platform"]["url"]
    said = dict(line.split(": ", 1) for line in complaint(write(yaml.safe_dump(content))).splitlines())
    assert said.keys() == {*wrong, "platform.url", "sensor"}
    for key, (_, words) in wrong.items():
        assert said[key].startswith(words)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: a\nurl: b\nname: c", "line 3, column 1: "),
        ("scan:\n  enrich: true\n  enrich: false", "line 3, column 3: "),
        ("name: a: b", "line 1, column 8: "),
        ("scan:\n  first_day: 2026-02-30", "invalid YAML"),
        ("name:\tHQ", r"line 1, column 6: invalid YAML: found character '\t' that"),
        ("name: [a\nurl: b", "line 2, column 4: invalid YAML: expected ',' or ']', but got ':'"),
        ("a: 'x'y", "line 1, column 7: invalid YAML: expected <block end>, but found '<scalar>'"),
        (
            "a:\n  b: 1\n c: 2",
            "line 3, column 2: invalid YAML: the line is indented unlike the others of its",
        ),
        (
            "a:\n  - b\n - c",
            "line 3, column 2: invalid YAML: the line is indented unlike the others of its",
        ),
        ("a: b\n c: d", "line 2, column 3: invalid YAML: a key cannot begin here: check the blanks before"),
        ("a: b\nurl:x\nc: d", "line 3, column 1: invalid YAML: a line above has no colon with a blank"),
        (
            "rules:\n  exclude_users:\n  - *$",
            "line 3, column 6: invalid YAML: put quotes around a value that begins",
        ),
        *(
            (
                f"password: {sign}s3cret",
                f"line 1, column 11: invalid YAML: put quotes around a value that begins with {sign}, ",
            )
            for sign in "*@%`!"
        ),
        ("- name", "must hold `key: value` lines"),
    ],
)
def test_a_file_that_is_not_a_mapping_is_refused_with_the_place(write, text, says):
    said = complaint(write(text))
    assert (said[: len(says)], "s3cret" in said) == (says, False)


@pytest.mark.parametrize("number", ["0042", "1:30", "4_2", "0x1f"])
def test_a_number_that_yaml_reads_as_another_one_stays_text(write, number):
    """The account of tenant 0042 would write into tenant 34."""
    text = yaml.safe_dump(instance_content()).replace(f"tenant_id: {TENANT}", f"tenant_id: {number}")
    assert load_instance(write(text)).platform.tenant_id == number


@pytest.mark.parametrize("number", ["127.1", "0x7F000001", "[::ffff:7f00:1]", "[0:0::FFFF:127.0.0.1]:080"])
def test_a_number_is_one_address_however_it_is_written(number):
    assert instance(**nested({"platform.url": f"http://{number}/a"})).platform.address == "http://127.0.0.1/a"


@pytest.mark.parametrize("error", [KeyError, OSError])  # of Python 3.12, and of 3.13
def test_a_user_without_a_name_is_known_by_number(monkeypatch, error):
    for name in ("SUDO_USER", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    assert system_user() == pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr(pwd, "getpwuid", Mock(side_effect=error("uid not found")))
    assert system_user() == str(os.geteuid())


NINEFOLD = {name: ",".join([f"*{before}"] * 9) for before, name in pairwise("abcdefghi")}


@pytest.mark.timeout(30)  # each takes a fraction of a second, and could take for ever
@pytest.mark.parametrize(
    "text",
    [
        "- " * 100_000,  # a CSafeLoader would crash
        'query: \'{"a": ' + "[" * 100_000 + "'",
        "a: 1\n" * 100_000,
        "query: !!int ''",
        "a: &a [x]\n" + "".join(f"{a}: &{a} [{nine}]\n" for a, nine in NINEFOLD.items()),
        "query: &q {bool: *q}",
        b"name: B\xfcro",
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        Path.mkdir,
    ],
    ids=["deep", "deep query", "large", "tag", "aliases", "in itself", "latin", "pipe", "endless", "folder"],
)
def test_a_file_that_cannot_be_used_keeps_no_other_from_loading(write, tmp_path, text):
    write(file="z.yaml")
    path = tmp_path / "broken.yaml"
    text(path) if callable(text) else path.write_bytes(text if isinstance(text, bytes) else text.encode())
    if len(str(text)) > 100_000:  # what other tests left cannot be freed once all of the stack is used
        gc.collect()
    broken, good = load_instances(tmp_path)
    assert isinstance(good, Instance)
    assert isinstance(broken, BrokenInstance)
    assert (broken.file, broken.slug) == (path, "broken")
    assert broken.message.startswith(str(path))


# Secrets


@pytest.mark.parametrize(
    "wrong",
    [
        *("hunter2", 42, ["hunter2"], {"vault": "hunter2"}, {"env": "A", "file": "hunter2"}, {}),
        *({"env": "hunter2"}, {"env": "HUNTER-2"}, {"env": "2"}, {"env": 42}, {"env": "A\n"}, {"env": ""}),
    ],
)
@pytest.mark.parametrize("key", ["password", "platform.mfa_secret", "cookies.session"])
def test_a_secret_in_clear_text_is_refused_with_how_to_write_it(write, key, wrong):
    said = complaint(write(**{key: wrong}))
    assert said.startswith(f"{key.removesuffix('.session')}: ")
    assert "{env: VARIABLE} or {file: PATH}" in said


@pytest.mark.parametrize(
    "text",
    [
        "cookies: session=hunter2",
        "cookies: {session=hunter2}",
        "cookies: {'session=hunter2': {env: A}}",
        "cookies: [hunter2]",
        "url: https://elastic:hunter2@search:9200",
        "url: https://elastic:hunter2@[search:9200",
        "url: https://search/?token=hunter2",
        "url: https://bob:hunter2/x@search:9200",
        "platform: {url: 'https://hunter2@[search'}",
        "platform: {password: hunter2, paswd: hunter2}",
        "platform: 'password: hunter2'",
        "platform: [password: hunter2]",
        "passwd: hunter2",
        "password: {env: hunter2}",
        "notify: [{env: 'https://chat/hunter2'}]",
        "notify: https://chat/hunter2",
        # Lines that YAML cannot read are quoted by its messages.
        "password: @hunter2",
        "password: !hunter2",
        "password: a: hunter2",
        'password: "\\qhunter2"',
        "password: 'hunter2",
        'name: !!float "hunter2"',
    ],
)
def test_a_secret_in_the_wrong_place_is_never_shown(write, text):
    with pytest.raises(ConfigurationError) as raised:
        load_instance(write(text))
    chain: BaseException | None = raised.value
    while chain is not None:
        assert "hunter2" not in str(chain)
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("written", [" pass wörd ", " pass wörd \n", " pass wörd \r\n"])
def test_a_secret_is_read_from_its_variable_or_its_file_beside_the_instance_file(
    write, tmp_path, monkeypatch, written, encoding
):
    (tmp_path / "password").write_bytes(written.encode(encoding))
    monkeypatch.setenv("PASSWORD", "\ufeff" + written if encoding == "utf-8-sig" else written)
    for place in ({"env": "PASSWORD"}, {"file": "password"}):
        settings = load_instance(write(password=place))
        assert settings.password.resolve("password") == " pass wörd "
        assert "pass wörd" not in repr(settings) + settings.model_dump_json()


@pytest.mark.parametrize(
    "place", [{"env": "UNSET"}, {"env": "EMPTY"}, *({"file": file} for file in ("none", "empty", "binary"))]
)
def test_a_secret_that_is_not_there_is_named(write, tmp_path, monkeypatch, place):
    monkeypatch.setenv("EMPTY", "\n")
    monkeypatch.setenv("INVENTORY_PASSWORD", "there")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfea\x00b")
    (name,) = place.values()
    for key in ("password", "platform.mfa_secret", "cookies.a"):
        with pytest.raises(ConfigurationError, match=rf"\.yaml: {key}: .*{name}"):
            load_instance(write(**{key: place})).require_secrets()
    with pytest.raises(ConfigurationError) as raised:
        load_instance(write(**{"password": place, "cookies.a": place})).require_secrets()
    assert [line.split(": ")[1] for line in str(raised.value).splitlines()] == ["password", "cookies.a"]


# Paths, the query, names


def test_paths_are_relative_to_the_file_that_names_them(write, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    places = {"ca_file": "certs/ca.pem", "platform.ca_file": "/etc/ca.pem", "cookies.a": {"file": "~/cookie"}}
    settings = load_instance(write(**places))
    assert settings.ca_file == tmp_path / "certs" / "ca.pem"
    assert settings.platform.ca_file == Path("/etc/ca.pem")
    assert settings.cookies["a"].file == Path("/home/ann/cookie")
    monkeypatch.chdir(tmp_path)
    assert load_instance(Path("instance.yaml")).ca_file == settings.ca_file


def test_home_and_instances_folder_come_from_the_environment(tmp_path, monkeypatch):
    for name in ("ASSET_OWNERS_HOME", "ASSET_OWNERS_INSTANCES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert (home(), instances_folder()) == (tmp_path / "var", tmp_path / "var" / "instances")
    monkeypatch.setenv("ASSET_OWNERS_HOME", "state")
    assert (home(), instances_folder()) == (tmp_path / "state", tmp_path / "state" / "instances")
    monkeypatch.setenv("ASSET_OWNERS_INSTANCES", "/etc/owners")
    assert instances_folder() == Path("/etc/owners")
    monkeypatch.setenv("HOME", "/home/ann")
    for kept in ("~/state", '"~/state"', "'/home/ann/state'\r", "/home/ann/state \n"):  # by env files
        for name in ("ASSET_OWNERS_HOME", "ASSET_OWNERS_INSTANCES", "ASSET_OWNERS_TABLES"):
            monkeypatch.setenv(name, kept)
        assert {home(), instances_folder(), Path(tables_location().path)} == {Path("/home/ann/state")}
    monkeypatch.setenv("ASSET_OWNERS_HOME", "/srv/p%41x/home")  # databases misread it
    with pytest.raises(ConfigurationError, match="ASSET_OWNERS_HOME: "):
        home()


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ann:secret@db:5432/owners?sslmode=require", "postgresql://ann@db:5432/owners"),
        ("postgresql:///owners?host=/run/postgresql&password=secret", "postgresql:///owners"),
        ("host=db dbname=owners password=secret", None),
        ("postgresql://user:sec@secret@db/owners", None),
        ("postgresql://user:sec/secret@db/owners", None),
        ("postgresql://user:sec#secret@db/owners", None),
    ],
)
def test_the_address_of_the_ledger_is_shown_without_its_password(monkeypatch, address, shown):
    monkeypatch.setenv("ASSET_OWNERS_JOURNAL", address)
    if shown:
        assert without_password(journal_url() or "") == shown
    else:
        with pytest.raises(ConfigurationError, match="ASSET_OWNERS_JOURNAL") as refused:
            journal_url()
        assert "sec" not in str(refused.value)


def test_a_command_names_the_instance_by_its_slug_or_by_a_file_elsewhere(write, tmp_path, monkeypatch):
    settings = load_instance(write(file="my instance.yaml"))
    monkeypatch.setenv("ASSET_OWNERS_INSTANCES", "/etc/owners")
    assert command_line(settings, "run") == f"asset-owners run --instance '{settings.file}'"
    monkeypatch.setenv("ASSET_OWNERS_INSTANCES", str(tmp_path))
    for word in ("a b", "x = 'y'", "x = '$y'", "it's", "a\"'b", ""):
        command = command_line(settings, "explain", word)
        assert shlex.split(command) == ["asset-owners", "explain", "--instance", "windows_logons", word]
    assert command_line(None, "sql", "x = 'y'") == "asset-owners sql \"x = 'y'\""
    assert command_line(settings, "explain", "a b") == "asset-owners explain --instance windows_logons 'a b'"


def test_a_command_names_the_program_by_its_path_unless_its_name_finds_the_same(tmp_path, monkeypatch):
    programs = [tmp_path / folder / "asset-owners" for folder in ("first", "second")]
    for program in programs:
        program.parent.mkdir()
        program.touch(0o755)
    monkeypatch.setenv("PATH", str(programs[0].parent))
    named = dict[str, str]()
    for called in ("asset-owners", *map(str, programs), "pytest"):
        monkeypatch.setattr("sys.argv", [called])
        named[called] = command_line(None, "check").removesuffix(" check")
    here, there = map(str, programs)
    assert named == {
        "asset-owners": "asset-owners",
        here: "asset-owners",
        there: there,
        "pytest": "asset-owners",
    }


def test_broken_files_and_files_of_one_name_hide_no_other_and_share_no_identifier(write, tmp_path):
    """Their jobs would, and Dagster then loads nothing at all."""
    assert load_instances(tmp_path / "nowhere") == []
    write(name="Corp", file="good.yaml")
    write(name="Twins", file="a.yaml")
    write(name="twins!", file="b.yml")
    for file in ("corp.yaml", "corp.yml", "CORP.yaml", "!.yaml"):
        write("broken", file=file)
    for file in ("notes.txt", "._good.yaml", ".hidden.yml"):
        (tmp_path / file).write_text("not an instance file")
    (tmp_path / ".#good.yaml").symlink_to("ann@pc:4711")  # of Emacs, while somebody edits
    found = load_instances(tmp_path)
    assert [one.slug for one in found if isinstance(one, Instance)] == ["corp"]
    assert len({one.slug for one in found}) == len(found) == 7
    assert all(one.slug.replace("_", "").isalnum() for one in found)


def test_the_extraction_fingerprint_changes_exactly_with_what_is_counted():
    counted = dict.fromkeys(("url", "index", *OneQuery.model_fields), "https://other.example") | {
        "query": "a:1",
        "scan.timezone": "Europe/Berlin",
    }
    others: dict[str, Any] = dict.fromkeys(("name", "username", "sensor", "platform_user_field"), "other")
    others |= {"scan.lookback_days": 7, "scan.late_days": 5, "rules.min_events": 2, "writes.dry_run": True}
    plain = extraction_fingerprint(instance())
    for key, value in (counted | others).items():
        changed = extraction_fingerprint(Instance.model_validate(nested({key: value}))) != plain
        assert changed == (key in counted), key
    assert extraction_fingerprint(instance(user_field="agent.name", hostname_field="user.name")) != plain
    assert plain == "b7b84b667a3067a9", "stored days would be fetched again"
    both = instance(logon_type_field="a", user_domain_field="b")
    assert extraction_fingerprint(both) == "b5f10a45a7d86831", "stored days would be fetched again"


def test_what_a_write_changes_besides_is_not_a_part_of_the_target():
    plain = instance().target
    for key, other in (
        ({"changed_by_writes": ["etag"]}, False),
        ({"read": None}, True),
        ({"page_size": 5}, False),
    ):
        assert (Instance.model_validate(nested({"platform.contract": key})).target != plain) == other


def test_logs_are_presets_or_mappings_with_defaults_of_their_own(write):
    own = {"preset": "linux", "index": "syslog-*", "hostname_field": "host.hostname"}
    logs = ["wazuh", own, {"query": "kind:logon", "time_field": "at"}]
    sources = load_instance(write(logs=logs)).sources
    assert [*sources] == ["wazuh", "linux", "logs-*"]
    wazuh, linux, other = sources.values()
    expected = presets()["wazuh"].settings
    assert {key: getattr(wazuh, key) for key in expected} == expected
    assert (linux.index, linux.hostname_field) == ("syslog-*", "host.hostname")
    assert linux.query == presets()["linux"].settings["query"]
    assert (other.index, other.user_field, other.time_field) == ("logs-*", "user.name", "at")
    assert [one.logs for one in (wazuh, linux, other)] == [(), (), ()]
    of_file = load_instance(write(logs=logs, index="corp-*")).sources.values()
    assert [one.index for one in of_file] == ["corp-*", "syslog-*", "corp-*"]
    assert len({*map(extraction_fingerprint, sources.values())}) == 3
    alike = instance(logs=["linux", own | {"index": "auth-*"}, "linux"]).sources
    assert [*alike] == ["linux", "linux #2", "linux #3"]
    assert [*instance().sources] == ["logs-*"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"logs": ["wazuh"], "user_field": "x", "query": "y"},
            "logs: query, user_field cannot be given beside",
        ),
        ({"logs": ["wazhu"]}, "logs.0.preset: 'wazhu' is not a known way of shipping; write one of "),
        ({"logs": [{"user_feild": "x"}]}, "logs.0.user_feild: unknown key; did you mean 'user"),
        ({"logs": ["linux"], "rules.logon_type_weights": {2: 10}}, "rules.logon_type_weights: needs logon"),
    ],
)
def test_logs_that_cannot_be_used_say_why(write, changes, says):
    assert complaint(write(**changes)).startswith(says)
