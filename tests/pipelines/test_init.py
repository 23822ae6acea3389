import io
import json
import os
import pty
import re
import signal
import ssl
import sys
import time
from base64 import b64decode
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import polars as pl
import pytest
import trustme
import typer

from ownership.names import fits_any, normalise_username
from pipelines.cli.init import _ask_until_good, _place
from resources.findings import Finding
from resources.settings import instance_path, load_instance
from resources.settings.files import validate_instance
from resources.settings.models import presets
from sandbox.inventory import Account, serving
from tests.resources.http_stub import Reply, Stub
from tests.resources.samples import instance_content


@pytest.fixture
def file(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("init", "instance.yaml")[0] == 0
    return Path("instance.yaml")


def test_without_a_name_it_is_written_where_commands_look_for_it(call, tmp_path, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "new"))
    assert call("init")[0] == 0
    instance, today = load_instance(instance_path()), datetime.now(UTC).date()
    assert instance.file == tmp_path / "new/instances/instance.yaml"
    assert 90 <= (today - instance.scan.first_day).days < 90 + 31, "the UI lists the days since then"
    assert call("init")[0] == 2, "it is never written over"


NO_PEOPLE = (
    *("PC-0815$", r"NT AUTHORITY\SYSTEM", r"NT AUTHORITY\ANONYMOUS LOGON", r"Window Manager\DWM-2"),
    *("Administrator", r"CORP\adm-miller", "svc_backup@corp.example"),
)
PEOPLE = ("adminah.okafor", "svcetlana", "dwm")


def test_the_suggested_exclusions_take_out_accounts_that_are_not_people(file):
    fits = fits_any(normalise_username(pl.col("name")), load_instance(file).rules.exclude_users)
    found = pl.DataFrame({"name": [*NO_PEOPLE, *PEOPLE]}).filter(fits)
    assert found["name"].to_list() == [*NO_PEOPLE]


def test_a_dash_prints_the_file_and_nothing_else(call, file):
    written = file.read_text(encoding="utf-8")
    assert call("init", "-")[:2] == (0, written.replace("--instance instance.yaml", "--instance FILE"))


@pytest.mark.parametrize("named", ["instance.yaml", "instance.yaml/mine.yaml", "", "folder"])
def test_what_cannot_be_a_new_file_is_refused_and_unchanged(call, file, named):
    file.write_text("name: mine\n", encoding="utf-8")
    Path("folder").mkdir()
    assert call("init", named)[0] == 2
    assert file.read_text(encoding="utf-8") == "name: mine\n"


@pytest.mark.parametrize("name", presets())
def test_the_logs_that_are_named_are_written_out(call, tmp_path, name):
    file, preset = tmp_path / "some.yaml", presets()[name]
    assert call("init", file, "--logs", name, "--url", "https://logs.example", "--index", "corp-*")[0] == 0
    instance = load_instance(file)
    assert (instance.url, instance.index, instance.logs) == ("https://logs.example", "corp-*", ())
    settings = {setting: getattr(instance, setting) for setting in preset.settings}
    assert settings == preset.settings | {"index": "corp-*"}
    assert instance.rules.hostname_match == preset.rules.get("hostname_match", "exact")
    assert ("root" in instance.rules.exclude_users) == (name in {"linux", "macos"})
    assert preset.title in file.read_text(encoding="utf-8")


def test_several_logs_count_together_without_the_accounts_of_either(call, tmp_path):
    file = tmp_path / "some.yaml"
    assert call("init", file, "--logs", "winlogbeat", "--logs", "linux")[0] == 0
    instance = load_instance(file)
    assert [logs.preset for logs in instance.logs] == ["winlogbeat", "linux"]
    assert {"system", "root"} < set(instance.rules.exclude_users)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--logs", "winlogbaet"], "--logs: 'winlogbaet' is not a known way of shipping"),
        (["--url", "logs:9200"], "url: is not an address"),
        (["--url", "https://elastic:hunter2@logs:9200", "--logs", "winlogbeat"], "url: is not an address"),
        (["--password-env", "hunter2"], "password: do not write the secret here"),
    ],
)
def test_options_that_cannot_be_used_say_why_and_write_nothing(call, tmp_path, options, says):
    status, _, error = call("init", tmp_path / "some.yaml", *options)
    assert (status, says in error, "hunter2" in error) == (2, True, False)
    assert not list(tmp_path.iterdir())


def newest_logon(request):
    """The search service of a company whose machines run Winlogbeat."""
    given = request.headers.get("Authorization", "Basic ").removeprefix("Basic ")
    if not b64decode(given).endswith(b":s3cret"):
        return Reply(b"", 401)
    if b'"pairs"' in request.body:
        pair = {"key": {"hostname": "PC-1.corp.example", "username": "ann"}, "doc_count": 3}
        found = {"timed_out": False, "_shards": {"total": 1}, "aggregations": {"pairs": {"buckets": [pair]}}}
        return Reply(json.dumps(found).encode())
    settings = presets()["winlogbeat"].settings
    fields = {settings[key]: ["x"] for key in settings if key.endswith("_field")}
    index = ".ds-winlogbeat-8.17-2026.11.20-000001"
    return Reply(_hit(_index=index, fields=fields, matched_queries=["winlogbeat"]).encode())


def _hit(**parts):
    return json.dumps({"hits": {"hits": [{"_index": "logs", "fields": {}, "matched_queries": []} | parts]}})


ODD = (
    *("", "<html>", "null", "[]", "1", "{}", "[" * 100_000, '{"hits": null}', '{"hits": []}', '{"hits": {}}'),
    *(
        '{"hits": {"hits": null}}',
        '{"hits": {"hits": {}}}',
        '{"hits": {"hits": [null]}}',
        '{"hits": {"hits": [[]]}}',
    ),
    *(_hit(_index=wrong) for wrong in (None, 1, "", [], "\x1b[31mred", "x" * 5_000_000, "a b", "\ud800")),
    *(
        _hit(fields=wrong)
        for wrong in (None, [], "x", {"agent.name": []}, {"agent.name": 1}, {"agent.name": None})
    ),
    _hit(fields={f"\x1b[2J{n}.user.name": ["x"] for n in range(9_999)} | {"x" * 9_999 + "hostname": ["x"]}),
    *(_hit(matched_queries=wrong) for wrong in (None, "linux", {}, [1], ["unknown"], {"linux": 1.0})),
)


@pytest.mark.parametrize("body", ODD, ids=lambda body: body[:60])
def test_an_odd_answer_of_the_search_service_is_one_sentence(call, tmp_path, monkeypatch, body):
    monkeypatch.setenv("SEARCH_PASSWORD", "s3cret")
    with Stub(lambda _: Reply(body.encode("utf-8", "surrogatepass"))) as search:
        status, out, error = call("init", tmp_path / "some.yaml", "--url", search.url)
    assert (status in {1, 2}, out, "Traceback" in error, "\x1b" in error) == (True, "", False, False), error
    assert len(error) < 2_000
    assert "No logon event" not in error, "whether there is one nobody knows"


@pytest.fixture
def answer(call, monkeypatch):
    """Call `init` on a terminal where somebody types these lines."""

    def answered(*lines, arguments=()):
        monkeypatch.setattr("pipelines.cli.init.is_on_terminal", lambda: True)
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return call("init", *arguments)

    return answered


def test_on_a_terminal_each_answer_is_tried_and_the_file_has_them(answer, tmp_path, monkeypatch):
    monkeypatch.setenv("SEARCH_PASSWORD", "")
    typed = iter(["mistyped", "s3cret"])
    monkeypatch.setattr("getpass.getpass", lambda *_: next(typed))
    monkeypatch.setenv("INVENTORY_PASSWORD", "wr0ng")
    monkeypatch.setenv("OTHER", "pa55word")
    robot = Account("robot@corp.example", "pa55word", roles={"0042": "admin"})
    with Stub(newest_logon) as search, serving(tmp_path / "inventory.sqlite") as inventory:
        inventory.state.reset([robot], [{"id": "h-1", "search_agent_name": "pc-1"}], [], "0042")
        status, out, error = answer(
            *("y", "Head office", "", "nowhere", search.url, "", "", "n", "", ""),
            *(
                inventory.url,
                "robot@corp.example",
                "Hunter2!",
                "{vault: hunter2}",
                "",
                "",
                "n",
                "",
                "OTHER",
                "",
            ),
            *("0042", ""),
            arguments=[tmp_path / "mine.yaml"],
        )
    assert status == 0, out + error
    assert out.count("An answer is needed\n") == 1
    assert "url: is not an address; write https://HOST:PORT/PATH" in out
    assert out.count("Do not type the password here: name a variable, such as PASSWORD;\n") == 2
    assert "1 hosts have logons: 0 are in the inventory (exact), 1 if the domain part is ignored" in out
    assert "newest logon: is in winlogbeat-*: " in out
    found = re.findall(r"  (\w+) +([\w-]+): ", out)
    assert [state for state, what in found if what == "log-in"] == ["wrong", "ok"]
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    (tmp_path / "instances").mkdir()
    (tmp_path / "instances" / "branch_2.yaml").touch()
    assert "branch_2.yaml is there already; give another name\nName" in answer("y", "Branch 2")[1]
    said = answer("y", arguments=[tmp_path / "mine.yaml"])[2]
    assert "mine.yaml is there already" in said, "before any question"
    assert not {"mistyped", "s3cret", "wr0ng", "pa55word"} & set(re.findall(r"\w+", out))
    assert "Set SEARCH_PASSWORD and OTHER, then try it:" in out
    instance = load_instance(tmp_path / "mine.yaml")
    assert (instance.url, instance.platform.url) == (search.url, inventory.url)
    assert (instance.platform.tenant_id, instance.platform.password.env) == ("0042", "OTHER")
    assert not re.search("(?i)hunter2", out + (tmp_path / "mine.yaml").read_text("utf-8"))
    assert instance.user_field == presets()["winlogbeat"].settings["user_field"]
    assert instance.rules.hostname_match == "short"
    written = re.findall(r"(?m)((?:^ *# .*\n)+)^ *[a-z]\w*:", (tmp_path / "mine.yaml").read_text("utf-8"))
    assert not [comment for comment in written if "not set" in " ".join(comment.split())]


def test_a_tenant_and_a_way_of_shipping_that_are_not_there_are_asked_for_again(answer, tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("pa55word\n")
    monkeypatch.setenv("SEARCH_PASSWORD", "s3cret")
    robot = Account("robot@corp.example", "pa55word", roles={"42": "admin"})
    with (
        Stub(lambda _: Reply(b'{"hits": {"hits": []}}')) as search,
        serving(tmp_path / "inventory.sqlite") as inventory,
    ):
        inventory.state.reset([robot], [], [], "42")
        status, out, error = answer(
            *("y", "Head office", search.url, "", "", "", "pa55word", "winlogbeat"),
            *(inventory.url, "robot@corp.example", "{file: secret}", "", "7", "n", "42", "y"),
            arguments=[tmp_path / "mine.yaml"],
        )
    assert status == 0, out + error
    instance = load_instance(tmp_path / "mine.yaml")
    assert (instance.index, instance.platform.tenant_id) == ("winlogbeat-*", "42")
    assert "pa55word" not in out, "a refused answer may be a password"


@pytest.mark.parametrize("missing", ["Rechner", "Anmeldung", "zeit", "Rechner Anmeldung zeit"])
def test_of_fields_that_are_not_recognised_only_the_missing_ones_have_no_default(
    answer, tmp_path, monkeypatch, missing
):
    """An index that is typed in is searched again, and no log-in is asked for again."""
    (secret := tmp_path / "secret").write_text("s3cret")
    known = {"user_field": "login", "hostname_field": "computer", "time_field": "when"}
    names = dict(zip(known, ("Anmeldung", "Rechner", "zeit"), strict=True))
    fields = {key: name if name in missing else known[key] for key, name in names.items()}
    values = {fields["user_field"]: ["ann"], fields["hostname_field"]: ["PC-1"], fields["time_field"]: ["-"]}
    if "zeit" not in missing:
        values["when"] = ["2026-03-02 09:00"]
    found = [_hit(_index=index, fields=some) for index, some in (("nginx-7", {"x": ["y"]}), ("ad-7", values))]
    tried = iter([Finding("wrong", "hostname_field", "no such field"), Finding("ok", "search", "searched")])
    monkeypatch.setattr("pipelines.cli.init._logons", lambda _: iter([next(tried)]))
    with Stub(lambda request: Reply(found["ad-" in request.path].encode())) as search:
        typed = {key: fields[key] if fields[key] in missing else "" for key in fields}
        status, out, _ = answer(
            *("y", "Head office", search.url, "", secret, "ad-*"),
            *(*typed.values(), "", "n", "", "", "", ""),
            arguments=[tmp_path / "mine.yaml"],
        )
    assert (status, out.count("User of the search service")) == (1, 1), "it ends at the inventory service"
    assert out.count("letters shown as a, digits as 9") == 2
    instance = load_instance(tmp_path / "mine.yaml")
    assert ({key: getattr(instance, key) for key in fields}, instance.index) == (fields, "ad-*")


@pytest.mark.parametrize("typed", [(), ("", ""), ("ca.pem", "", "")])
def test_who_stops_in_between_finds_the_answers_in_the_file(answer, tmp_path, monkeypatch, typed):
    """The authority is asked for where the certificate is the reason, and tried with the same answers."""
    monkeypatch.setenv("SEARCH_PASSWORD", "s3cret")
    monkeypatch.chdir(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if "ca.pem" in typed else None
    if tls:
        authority = trustme.CA()
        authority.cert_pem.write_to_path("ca.pem")
        authority.issue_cert("localhost").configure_cert(tls)
    with Stub(newest_logon, tls=tls) as search:
        lines = (search.url, *typed) if typed else ()
        status, out, _ = answer("y", "Head office", *lines, arguments=["mine.yaml"])
    assert (status, Path("mine.yaml").exists()) == (1, bool(typed)), out
    if not typed:
        assert "Nothing was written. " in out
        return
    assert "mine.yaml has the answers so far. Fill in the others there, then try it:\n" in out
    instance = load_instance(Path("mine.yaml"))
    assert (instance.url, instance.index) == (search.url, "winlogbeat-*")
    assert (instance.ca_file, "anyway" in out) == (tmp_path / "ca.pem" if tls else None, False)


def test_an_interrupted_trial_loses_no_answer(answer, tmp_path, monkeypatch):
    monkeypatch.setenv("SEARCH_PASSWORD", "s3cret")
    monkeypatch.setattr("pipelines.cli.init.check_connection", Mock(side_effect=KeyboardInterrupt))
    status, out, _ = answer("y", "Head office", "https://s.example", arguments=[tmp_path / "mine.yaml"])
    assert (status, "has the answers so far" in out) == (1, True)
    assert load_instance(tmp_path / "mine.yaml").url == "https://s.example"


def test_an_answer_that_cannot_be_valid_is_asked_for_again(tmp_path, monkeypatch):
    """Also one to a further question, which is tried with the answers of before."""
    content = instance_content() | {"index": "logs-*"}
    tried = iter(["name the indexes that it may read"] * 2)

    def trial(_):
        yield Finding("wrong" if (text := next(tried, "")) else "ok", "newest logon", text)

    lines = (content["url"], "x" * 3000, content["url"], "mine-*")
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    read = partial(validate_instance, content, tmp_path / "mine.yaml")
    _ask_until_good(content, {"url": "Address"}, read, trial)
    assert content["index"] == "mine-*"


@pytest.mark.skipif(not Path("/dev/ptmx").exists(), reason="there are no pseudo-terminals")
def test_ctrl_c_ends_a_question(tmp_path, monkeypatch):
    """Polars is loaded by then, whose handler of SIGINT lets a read go on."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    child, terminal = pty.fork()
    if not child:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # who runs the tests in the background ignores it
        program = "from pipelines.cli import main; main()"
        os.execv(sys.executable, [sys.executable, "-c", program, "init"])  # noqa: S606  (our own program)
    for answer in (b"y\n", b"\x03"):
        shown = b""
        while not shown.rstrip().endswith(b"]:"):
            shown += os.read(terminal, 1024)
        os.write(terminal, answer)
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        time.sleep(0.1)
        os.write(terminal, b"\x03")  # the first may come before the program reads
    assert os.waitstatus_to_exitcode(ended[1]) != 0
    assert not list((tmp_path / "instances").iterdir())


def test_a_password_is_named_by_its_variable_or_by_the_path_of_its_file_and_not_typed(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("hunter2")
    file = str(tmp_path / "secret")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "OTHER").touch()
    assert [_place(answer, "password") for answer in ("", "OTHER", file, f"{{file: {file}}}", "secret")] == [
        *({}, {"env": "OTHER"}),
        *({"file": file}, {"file": file}, {"file": file}),
    ]
    for password in (str(tmp_path / "hunter2"), "{file: /hunter2}", "~hunter2", "hunter2" * 999):
        with pytest.raises(typer.BadParameter, match="Do not type the TOTP secret here") as raised:
            _place(password, "mfa_secret")
        assert ("No file of that path can be read" in str(raised.value)) == ("/" in password)
