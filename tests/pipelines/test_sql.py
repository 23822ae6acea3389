"""`asset-owners sql` as an analyst's shell runs it, beside DuckDB clients of other makes."""

import csv
import io
import json
import logging
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
import yaml

from ownership.declaration import polars_schema
from ownership.tables import OwnerDecisions, OwnerWrites
from pipelines.cli import main
from pipelines.cli.sql import opening_lines
from resources.settings import tables_location
from resources.store.tables import Tables
from tests.ownership.builders import NOW, host, hosts

ASSET_OWNERS = Path(sys.executable).with_name("asset-owners")
HOSTS = "SELECT host_id FROM inventory_hosts ORDER BY ALL"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home whose one instance, Head office, has two hosts."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "home"))
    fill(tmp_path / "home", "head_office", "a", "b")
    return tmp_path / "home"


@pytest.fixture
def sql(home, monkeypatch, capsys):  # noqa: ARG001  (the tables that are asked)
    """Call the command as a shell would; return what it prints, or says when it ends with another status."""

    def call(*arguments, status=0, stdin="", told=""):
        monkeypatch.setattr(sys, "argv", ["asset-owners", "sql", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert (ended.value.code or 0) == status, err
        assert told in err
        return err if status else out

    return call


@pytest.fixture
def as_json(sql):
    return lambda *arguments: json.loads(sql(*arguments, "--format", "json"))


def fill(home, slug, *host_ids, location=None):
    tables = Tables(home, slug, location=location)
    tables.prepare()
    tables.write("inventory_hosts", hosts(*(host(host_id) for host_id in host_ids)), run_id="r", publish=True)
    return tables


def instance_file(tmp_path, name):
    content = {
        "name": name, "url": "https://search.corp.example", "username": "u", "password": {"env": "NOT_SET"},
        "sensor": "s",
        "platform": {
            "url": "https://inventory.corp.example", "email": "e", "password": {"env": "NOT_SET"},
            "tenant_id": "1",
        },
    }  # fmt: skip
    file = tmp_path / f"{name}.yaml"
    file.write_text(yaml.safe_dump(content))
    return str(file)


def test_a_table_is_found_with_and_without_its_schema(as_json):
    for name in ("inventory_hosts", "head_office.inventory_hosts", "warehouse.head_office.inventory_hosts"):
        assert [row["host_id"] for row in as_json(f"FROM {name}")] == ["a", "b"]
    assert as_json("SELECT day FROM coverage") == []


def test_rows_come_as_a_box_as_csv_and_as_json(sql, as_json):
    query = (
        "SELECT '007' AS id, 'a,\"b\"\n' AS text, '' AS empty, NULL AS nothing, 7 AS number, true AS yes, "
        "-1.50::DECIMAL(4, 2) AS exact, [1, 2] AS list, DATE '2026-03-31' AS day, 'nan'::DOUBLE AS share"
    )
    box = sql(query)
    assert "│ number │" in box
    assert "│ [1, 2] " in box
    assert sql(query, "--format", "csv") == (
        '"id","text","empty","nothing","number","yes","exact","list","day","share"\n'
        '"007","a,""b""\n","",,7,"true",-1.50,"[1, 2]","2026-03-31",nan\n'
    )
    assert as_json(query) == [
        {
            "id": "007", "text": 'a,"b"\n', "empty": "", "nothing": None, "number": 7, "yes": True,
            "exact": "-1.50", "list": [1, 2], "day": "2026-03-31", "share": None,
        }
    ]  # fmt: skip
    empty = "SELECT host_id FROM inventory_hosts WHERE false"
    assert (sql(empty, "--format", "csv"), as_json(empty)) == ('"host_id"\n', [])


def test_what_acts_on_a_terminal_is_escaped_there_and_goes_into_files_as_it_is(sql, monkeypatch):
    query = "SELECT 'a\x1b[2J\u202e' AS name"
    assert sql(query, "--format", "csv") == '"name"\n"a\x1b[2J\u202e"\n'
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert sql(query, "--format", "csv") == '"name"\n"a\\x1b[2J\\u202e"\n'
    assert all(line.isprintable() for line in sql(query).splitlines())
    refused = sql("SELECT 'a\x1b[2J\nasset-owners: all is well'::INT", status=1)
    assert all(line.isprintable() for line in refused.splitlines())
    assert not any(line.startswith("asset-owners: all") for line in refused.splitlines())


def test_no_text_in_csv_is_a_formula(sql, as_json):
    query = "SELECT '=cmd()' AS name, -1 AS number, ['=cmd()'] AS list, 'pc-1' AS \"@head\""
    assert list(csv.reader(sql(query, "--format", "csv").splitlines())) == [
        ["name", "number", "list", "'@head"],
        ["'=cmd()", "-1", '["=cmd()"]', "pc-1"],
    ]
    assert as_json(query)[0]["name"] == "=cmd()", "as it is, for programs"


@pytest.mark.parametrize("end", ["", ";", "; -- done"])
def test_columns_of_the_same_name_are_all_there(sql, as_json, end):
    query = f"SELECT 1 AS run_id, 2 AS run_id, 3 AS Run_ID ORDER BY ALL{end}"
    assert as_json(query) == [{"run_id": 1, "run_id_1": 2, "Run_ID_2": 3}]
    assert sql(query, "--format", "csv") == '"run_id","run_id_1","Run_ID_2"\n1,2,3\n'
    assert "│ run_id │ run_id │ Run_ID │" in sql(query)


def test_what_is_not_for_a_screen_is_whole(sql, as_json):
    query = "SELECT range AS number, repeat('x', 300) AS text FROM range(2500) ORDER BY number DESC"
    assert sql(query).count("x" * 300) == 2500
    assert len(sql(query, "--format", "csv").splitlines()) == 2501
    assert [row["number"] for row in as_json(query)] == [*range(2499, -1, -1)]


def test_a_query_may_come_from_standard_input_and_have_several_statements(sql):
    query = "CREATE TABLE mine AS SELECT 1;\n INSERT INTO mine VALUES (2);\nSELECT count(*) AS n FROM mine;"
    assert json.loads(sql("--format", "json", stdin=query)) == [{"n": 2}]
    assert sql(stdin="") == ""
    assert "The query is empty" in sql(" ", status=2)


def test_new_tables_are_the_sessions_own_unless_the_scratch_file_is_named(sql, as_json, tmp_path):
    sql("CREATE TABLE mine AS FROM inventory_hosts")
    assert "mine does not exist" in sql("FROM mine", status=2)
    kept = ("--scratch", str(tmp_path / "it's mine.duckdb"))
    sql("CREATE TABLE mine AS FROM inventory_hosts", *kept)
    assert as_json("SELECT count(*) AS n FROM mine", *kept) == [{"n": 2}]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("FROM nowhere", "nowhere does not exist"),
        ("SELEC 1", 'near "SELEC"'),
        ("SELECT hots FROM inventory_hosts", "Binder Error"),
        ("DROP VIEW head_office.inventory_hosts", "read-only"),
        ("CREATE TABLE warehouse.head_office.mine AS SELECT 1", "read-only"),
    ],
)  # fmt: skip
def test_a_wrong_query_says_why_and_changes_nothing(sql, as_json, query, says):
    assert says in sql(query, status=2)
    assert as_json(HOSTS) == [{"host_id": "a"}, {"host_id": "b"}]


def test_a_query_that_fails_on_its_way_is_no_wrong_argument(sql):
    said = sql("SELECT CAST(host_id AS INT) FROM inventory_hosts", status=1)
    assert said.startswith("asset-owners: DuckDB failed: Conversion Error")
    assert "Traceback" not in said


def test_before_the_first_run_it_says_what_to_do(sql, tmp_path, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "none"))
    said = sql("FROM conflicts", status=1)
    assert f"no tables in {tmp_path / 'none'} yet" in said
    assert "ASSET_OWNERS_HOME" in said
    assert not (tmp_path / "none").exists()


@pytest.fixture
def second_machine(home, object_store, tmp_path, monkeypatch):  # noqa: ARG001  (where the tables lie)
    """A home with the instance file alone; on another machine it has run, and has two hosts in the store."""
    tables = Tables(tmp_path / "first", "head_office", location=tables_location())
    tables.prepare()
    tables.write("inventory_hosts", hosts(host("a"), host("b")), run_id="0644f428-first", publish=True)
    tables.write("inventory_hosts", hosts(host("c")), run_id="0644f428-later", publish=False)
    home = tmp_path / "second"
    (home / "instances").mkdir(parents=True)
    instance_file(home / "instances", "Head office")
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(home))
    return home


def test_on_a_machine_where_no_run_has_been_the_tables_of_the_store_are_asked(
    second_machine, as_json, sql, caplog
):
    assert not (second_machine / "warehouse.duckdb").exists()
    caplog.set_level(logging.INFO, "werkzeug")  # a line a request
    count = "SELECT count(*) AS number FROM head_office.inventory_hosts"
    assert as_json(count) == [{"number": 2}]
    assert any("/tables/&" in record.getMessage() for record in caplog.records), "the store is listed"
    caplog.clear()
    assert as_json(count, "--instance", "head_office") == [{"number": 2}]
    assert sql("SELECT 1")
    asked = [record.getMessage() for record in caplog.records]
    assert asked, "requests are counted"
    assert [line for line in asked if "/tables/&" in line] == [], "a catalogue that has all is not compared"


def test_on_such_a_machine_a_run_is_found_by_its_id(second_machine, as_json):
    (second_machine / "instances" / "Head office.yaml").unlink()
    assert as_json("SELECT host_id FROM inventory_hosts", "--run", "0644f428-later") == [{"host_id": "c"}]


def test_an_instance_that_runs_elsewhere_later_is_taken_up_too(second_machine, as_json, tmp_path):
    count = "SELECT count(*) AS number FROM {}.inventory_hosts"
    assert as_json(count.format("head_office")) == [{"number": 2}]
    instance_file(second_machine / "instances", "Branch")
    fill(tmp_path / "first", "branch", "d", location=tables_location())
    assert as_json(count.format("branch")) == [{"number": 1}]


@pytest.mark.usefixtures("object_store")
@pytest.mark.parametrize("more", [[], ["--run", "0644f428"]])
def test_a_store_without_tables_is_named_with_its_setting(sql, tmp_path, monkeypatch, more):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "none"))
    said = sql("FROM conflicts", *more, status=1)
    assert f"no tables in {tables_location()} yet" in said
    assert "ASSET_OWNERS_TABLES" in said
    assert not (tmp_path / "none").exists()


def test_of_several_instances_one_is_named_or_chosen(sql, as_json, home, tmp_path):
    fill(home, "branch", "c")
    said = sql("SELECT host_id FROM inventory_hosts", status=2)
    assert "branch.inventory_hosts" in said, "DuckDB names tables that are near"
    assert as_json("SELECT host_id FROM branch.inventory_hosts") == [{"host_id": "c"}]
    both = "SELECT host_id FROM {} UNION SELECT host_id FROM branch.inventory_hosts ORDER BY ALL"
    for name in ("head_office.inventory_hosts", "warehouse.head_office.inventory_hosts"):
        assert [row["host_id"] for row in as_json(both.format(name))] == ["a", "b", "c"]
    chosen = ("--instance", instance_file(tmp_path, "Head office"))
    assert [row["host_id"] for row in as_json(both.format("inventory_hosts"), *chosen)] == ["a", "b", "c"]
    unknown = instance_file(tmp_path, "Elsewhere")
    assert f"no tables of elsewhere in {home} yet" in sql("SELECT 1", "--instance", unknown, status=1)
    assert "no such file" in sql("SELECT 1", "--instance", "none.yaml", status=2).lower()


def test_a_run_tells_which_of_several_instances_is_meant(as_json, home):
    tables = fill(home, "branch", "c")
    tables.write("inventory_hosts", hosts(host("d")), run_id="of-branch", publish=False)
    for query in ("SELECT host_id FROM inventory_hosts", "SELECT host_id FROM branch.inventory_hosts"):
        assert as_json(query, "--run", "of-branch") == [{"host_id": "d"}]
    assert as_json("FROM conflicts", "--run", "of-branch") == []


def test_of_several_instances_new_tables_need_the_name_of_the_scratch_file(as_json, sql, home, tmp_path):
    fill(home, "branch", "c")
    kept = ("--scratch", str(tmp_path / "kept.duckdb"))
    assert as_json("CREATE TABLE scratch.mine AS FROM branch.inventory_hosts; FROM mine", *kept)
    assert as_json("SELECT count(*) AS n FROM scratch.mine", *kept) == [{"n": 1}]
    assert "read-only" in sql("CREATE TABLE mine AS SELECT 1", status=2)


def test_of_several_instances_those_that_only_planned_are_told(sql, home):
    tables = fill(home, "branch", "c")
    frame = pl.DataFrame(schema=polars_schema(OwnerDecisions))
    tables.write("owner_decisions", frame, run_id="planned", publish=False)
    sql("FROM branch.inventory_hosts", told="branch has only planned so far")


def test_an_instance_whose_file_is_deleted_is_left_out_where_others_remain(as_json, sql, home, tmp_path):
    branch = Path(instance_file(tmp_path, "Branch"))
    fill(home, "branch", "c")
    Tables(home, "branch", name="Branch", file=branch).claim()
    assert "Did you mean" in sql("FROM inventory_hosts", status=2)
    branch.unlink()
    assert as_json(HOSTS) == [{"host_id": "a"}, {"host_id": "b"}]
    assert as_json("SELECT host_id FROM warehouse.branch.inventory_hosts") == [{"host_id": "c"}]
    Tables(home, "head_office", name="Head office", file=tmp_path / "gone.yaml").claim()
    assert "Did you mean" in sql("FROM inventory_hosts", status=2), "of none the file is left"


def test_the_rows_of_every_statement_are_printed(sql):
    query = 'SELECT 1 AS first; CREATE TABLE mine AS SELECT 2; UPDATE mine SET "2" = 3; SELECT 4 AS second;'
    told = sql(stdin=query)
    assert told.index("│ first │") < told.index("│ second │")
    assert sql("--format", "csv", stdin=query) == '"first"\n1\n\n"second"\n4\n'
    assert json.loads(sql("--format", "json", stdin=query)) == [{"second": 4}], "JSON is one document"


def test_each_query_of_the_guide_is_answered(sql, home):
    fill(home, "demo", "c")
    guide = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    queries = guide.split("```sql\n")[1].split("```")[0]
    told = sql(stdin=queries)
    assert [name in told for name in ("existing_owner", "hosts", "department_before")] == [True] * 3


ANY_CLIENT = """
import sys
import duckdb

client = duckdb.connect()
for line in sys.stdin:
    client.execute(line)
client.execute("CREATE TABLE mine AS FROM inventory_hosts")
print(client.sql("SELECT count(*) FROM scratch.mine, head_office.inventory_hosts").fetchall())
"""


def test_the_three_lines_open_the_tables_in_any_client_while_others_use_them(as_json, home, tmp_path):
    lines = opening_lines(home, tmp_path / "my scratch.duckdb")
    assert len(lines) == 3
    tables = Tables(home, "head_office")
    with tables.writing():
        answered = subprocess.run(  # noqa: S603  (ours)
            [sys.executable, "-c", ANY_CLIENT],
            input="\n".join(lines),
            capture_output=True,
            text=True,
            check=True,
        )
        tables.write("inventory_hosts", hosts(host("a")), run_id="r", publish=True)
    assert answered.stdout == "[(4,)]\n"
    assert as_json(HOSTS) == [{"host_id": "a"}]


TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


class Person:
    """Somebody at a terminal: what is typed goes in, what is shown comes out."""

    def __init__(self, *arguments):
        self._process = subprocess.Popen(  # noqa: S603  (our own program)
            [sys.executable, "-c", TERMINAL, ASSET_OWNERS, "sql", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._shown = b""  # and not yet asked for

    def __enter__(self):
        return self

    def sees(self, text):
        """Wait for a text; return all that was shown until then."""
        assert self._process.stdout is not None
        wanted = text.encode()
        while wanted not in self._shown:
            shown = self._process.stdout.read(4096)
            assert shown, f"ended without {text}: {self._shown.decode()}"
            self._shown += shown
        seen, _, self._shown = self._shown.partition(wanted)
        return (seen + wanted).decode()

    def types(self, text):
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())

    def ends(self):
        return self._process.wait(20)

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()


TELLS_ITS_COLOURS = "\x1b]11;rgb:0000/0000/0000\x07\x1b[?1;2c"


def test_at_a_terminal_duckdbs_shell_starts(as_json, tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("HOME", str(tmp_path))  # the shell's history goes there
    scratch = tmp_path / "kept.duckdb"
    with Person("--scratch", str(scratch)) as person:
        person.sees("\x1b[c")
        person.types(TELLS_ITS_COLOURS)
        person.sees(" D ")
        person.types("SELECT count(*) + 40 AS hosts FROM inventory_hosts;\n")
        person.sees("42")
        person.sees(" D ")
        person.types("SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b;\n")
        time.sleep(1)
        person.types("\x03")
        person.sees(" D ")
        person.types(
            "CREATE TABLE mine AS FROM inventory_hosts;\nDROP VIEW warehouse.head_office.conflicts;\n"
        )
        person.sees("read-only")
        person.types(".exit 3\n")
        assert person.ends() == 3
    kept = ("--scratch", str(scratch))
    assert as_json("SELECT count(*) AS n FROM mine", *kept) == [{"n": 2}]


@pytest.mark.usefixtures("home")
def test_tables_in_an_object_store_are_asked_with_a_query(monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_TABLES", "s3://bucket/asset-owners")
    with Person() as person:
        person.sees("give a query: asset-owners sql")
        assert person.ends() == 2


def test_a_table_of_another_shape_keeps_its_types_for_a_program(as_json, home):
    """Instants carry their offset, structs are objects."""
    tables = Tables(home, "head_office")
    nothing = {"owner": None, "department": None, "criticality": None}
    row = {
        "run_id": "r", "host_id": "a", "hostname": "pc", "outcome": "written", "old_values": nothing,
        "new_values": {**nothing, "owner": "u"}, "intended_at": NOW, "completed_at": NOW, "target": None,
    }  # fmt: skip
    tables.append("owner_writes", pl.DataFrame([row], schema=polars_schema(OwnerWrites)), run_id="r")
    [found] = as_json("SET TimeZone = 'UTC'; SELECT new_values, completed_at FROM owner_writes")
    assert found == {"new_values": {**nothing, "owner": "u"}, "completed_at": "2026-03-30 12:00:00+00:00"}
