"""`asset-owners sql` as an analyst's shell runs it, beside DuckDB clients of other makes."""

import io
import json
import logging
import signal
import subprocess
import sys
from datetime import UTC, datetime
from tempfile import gettempdir
from typing import Any
from unittest.mock import Mock

import duckdb
import polars as pl
import pytest
import yaml

from assets_defs.record import RunRecord
from ownership.declaration import polars_schema
from ownership.tables import ThresholdBacktest
from pipelines.cli import sql as command
from resources.settings import tables_location
from resources.store.catalogue import VIEWS, refresh_catalogue
from resources.store.files import write_file
from resources.store.tables import Tables
from tests.ownership.builders import NOW, RUN, host, hosts
from tests.resources.samples import instance_content

pytestmark = pytest.mark.jobs  # each calls commands on what a run stored

HOSTS = "SELECT host_id FROM inventory_hosts ORDER BY ALL"


@pytest.fixture(scope="module")
def home_of_one(tmp_path_factory):
    home = tmp_path_factory.mktemp("one")
    fill(home, "head_office", "a", "b")
    return home


@pytest.fixture
def home(home_of_one, monkeypatch):
    """A home whose one instance, Head office, has two hosts."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(home_of_one))
    return home_of_one


@pytest.fixture
def sql(home, call, monkeypatch):  # noqa: ARG001  (the tables that are asked)
    """Call the command; return what it prints, or says when it ends with another status."""

    def asked(*arguments, status=0, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        ended, out, err = call("sql", *arguments)
        assert ended == status, err
        return err if status else out

    return asked


@pytest.fixture
def as_json(sql):
    return lambda *arguments: json.loads(sql(*arguments, "--format", "json"))


def fill(home, slug, *host_ids, location=None):
    tables = Tables(home, slug, location=location)
    tables.prepare()
    tables.write("inventory_hosts", hosts(*(host(host_id) for host_id in host_ids)), run_id="r", publish=True)
    return tables


def instance_file(tmp_path, name):
    file = tmp_path / f"{name}.yaml"
    file.write_text(yaml.safe_dump(instance_content(name=name)))
    return str(file)


def test_a_wrong_query_says_why_and_changes_nothing(sql, as_json):
    for query, says in {
        "FROM nowhere": "nowhere does not exist",
        "SELEC 1": 'near "SELEC"',
        "SELECT hots FROM inventory_hosts": "Binder Error",
        "SELECT by FROM runs ORDER BY ALL": 'Without double quotes SQL does not take "by" for a column',
        "DROP VIEW head_office.inventory_hosts": "read-only",
        "CREATE TABLE warehouse.head_office.mine AS SELECT 1": "read-only",
    }.items():
        assert says in sql(query, status=2)
    for odd in (["SELECT '\udcfc'"], []):
        assert "is not UTF-8" in sql(*odd, stdin="SELECT '\udcfc'", status=2)
    assert "quotes" not in sql("""SELEC "by", 'at' FROM runs GROUP BY ALL""", status=2)
    made = "CREATE TABLE mine AS FROM inventory_hosts; SELECT count(*) AS n FROM mine"
    assert as_json(made) == [{"n": 2}]
    [(place,)] = [row.values() for row in as_json("SELECT current_setting('temp_directory')")]
    assert place == gettempdir(), "large queries write nothing where the user happens to be"
    assert "mine does not exist" in sql("FROM mine", status=2), "a new table is the session's own"
    assert as_json(HOSTS) == [{"host_id": "a"}, {"host_id": "b"}]


def test_a_query_that_is_interrupted_says_so_without_a_trace(sql, monkeypatch):
    def interrupted(*arguments):
        signal.setitimer(signal.ITIMER_REAL, 1)
        answer(*arguments)

    answer, before = command._answer, signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C
    monkeypatch.setattr(command, "_answer", interrupted)
    # With several threads DuckDB notices it now and then only.
    said = sql("SET threads = 1; SELECT sum(n) AS n FROM range(1000000000000) AS r(n)", status=1)
    signal.signal(signal.SIGALRM, before)
    assert said.strip() == "asset-owners: The query was interrupted"


def test_before_the_first_run_it_says_what_to_do(sql, tmp_path, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "none"))
    said = sql("FROM conflicts", status=1)
    assert f"no tables in {tmp_path / 'none' / 'tables'} yet" in said
    assert "ASSET_OWNERS_HOME" in said
    assert not (tmp_path / "none").exists()


@pytest.fixture
def second_machine(home, object_store, tmp_path, monkeypatch):  # noqa: ARG001  (where the tables lie)
    """A home with the instance file alone; on another machine it has run, and has two hosts in the store."""
    with monkeypatch.context() as patch:  # whose catalogue nobody asks
        patch.setattr("resources.store.tables.refresh_catalogue", lambda *_, **__: None)
        tables = fill(tmp_path / "first", "head_office", "a", "b", location=tables_location())
    tables.write("inventory_hosts", hosts(host("c")), run_id="0644f428-later", publish=False)
    home = tmp_path / "second"
    (home / "instances").mkdir(parents=True)
    instance_file(home / "instances", "Head office")
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(home))
    return home


def test_a_table_that_a_command_fills_says_which_where_it_has_no_rows(call, home):
    for query in ("FROM confidence_bands", "SELECT hosts FROM owner_decisions, head_office.confidence_bands"):
        said = call("sql", query)[2]
        assert said.startswith("asset-owners: confidence_bands has no rows: How many of the")
        assert said.endswith("then `tune --audit-answers`. `asset-owners tune` fills it\n")
    assert not call("sql", "FROM owner_decisions")[2]
    tables = Tables(home, "head_office")
    columns: Any = polars_schema(ThresholdBacktest)
    row = pl.DataFrame([dict.fromkeys(columns)], schema=columns)
    write_file(row, tables.folder / "threshold_backtest.parquet")
    refresh_catalogue(home, tables.folder.parent, "head_office")
    day, said = f"{datetime.now(UTC):%Y-%m-%d}", call("sql", "FROM suggestions")[2]
    assert f"Last filled {day}" in said
    assert said.endswith(" UTC by `asset-owners tune`\n"), "it found nothing that would help"


def test_the_newest_run_comes_first(as_json, tmp_path, monkeypatch):
    tables, names = fill(tmp_path, "head_office", "a"), ["run-b", "run-a", "run-c"]
    for run_id in names:
        RunRecord(tables, run_id, None, logging.getLogger()).begin("run")
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path))
    assert [row["run_id"] for row in as_json("FROM runs")] == names[::-1]


def test_of_several_instances_one_is_named_or_chosen(sql, as_json, tmp_path, monkeypatch):
    home = tmp_path / "two"
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(home))
    fill(home, "head_office", "a", "b")
    fill(home, "branch", "c")
    said = sql("SELECT host_id FROM inventory_hosts", status=2)
    assert "branch.inventory_hosts" in said, "DuckDB names tables that are near"
    assert as_json("SELECT host_id FROM branch.inventory_hosts") == [{"host_id": "c"}]
    both = "SELECT host_id FROM {} UNION SELECT host_id FROM branch.inventory_hosts ORDER BY ALL"
    for name in ("head_office.inventory_hosts", "warehouse.head_office.inventory_hosts"):
        assert [row["host_id"] for row in as_json(both.format(name))] == ["a", "b", "c"]
    (home / "instances").mkdir()
    instance_file(home / "instances", "Head office")
    (home / "tables" / "head_office" / ".instance").write_text("damaged")
    assert as_json("SELECT host_id FROM branch.inventory_hosts") == [{"host_id": "c"}], "others still answer"
    (home / "tables" / "head_office" / ".instance").unlink()
    chosen = ("--instance", instance_file(tmp_path, "Head office"))
    assert [row["host_id"] for row in as_json(both.format("inventory_hosts"), *chosen)] == ["a", "b", "c"]
    unknown = instance_file(tmp_path, "Elsewhere")
    assert f"no tables of elsewhere in {home / 'tables'} yet" in sql(
        "SELECT 1", "--instance", unknown, status=1
    )
    assert "--run" in sql("SELECT 1", "--run", "of-branch", status=2)


def test_the_rows_of_every_statement_are_printed(sql):
    query = 'SELECT 1 AS first; CREATE TABLE mine AS SELECT 2; UPDATE mine SET "2" = 3; SELECT 4 AS second;'
    printed = sql(stdin=query)
    assert printed.split() == ["first", "1", "second", "4"]
    assert sql("--format", "csv", stdin=query) == '"first"\n1\n\n"second"\n4\n'
    assert json.loads(sql("--format", "json", stdin=query)) == [{"second": 4}], "JSON is one document"


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("PIVOT inventory_hosts ON host_id USING count(*) GROUP BY problem -- by id", [{"a": 1, "b": 1}]),
        ('FROM (PIVOT inventory_hosts ON host_id USING count(*)) SELECT count(*) AS "Count"', [{"Count": 1}]),
        ("CREATE TABLE m AS SELECT 1 AS n; DELETE FROM m RETURNING n + 1 AS n; DROP TABLE m", [{"n": 2}]),
        ('CREATE TABLE m AS PIVOT inventory_hosts ON host_id; SELECT 1 AS "Success"', [{"Success": 1}]),
    ],
)
def test_whatever_selects_has_its_rows_printed(as_json, sql, query, rows):
    assert [{name: row[name] for name in rows[0]} for row in as_json(query)] == rows
    assert all(name in sql(query, "--format", form) for name in rows[0] for form in ("csv", "table"))


@pytest.mark.parametrize("kind", [duckdb.Error, duckdb.IOException])
def test_a_query_that_meets_a_file_that_is_replaced_is_asked_again(as_json, monkeypatch, kind):
    """DuckDB opens it twice, and has one of these errors where it is another file by then."""
    usual, replaced = command._json, iter([True, True])

    def met(relation):
        if next(replaced, False):
            raise kind("the file was replaced")
        return usual(relation)

    monkeypatch.setattr("pipelines.cli.sql._json", met)
    assert as_json(HOSTS) == [{"host_id": "a"}, {"host_id": "b"}]


def test_rows_come_as_a_table_as_csv_and_as_json(sql, as_json):
    query = (
        "SELECT '007' AS id, '=cmd()' AS \"@text\", '' AS empty, NULL AS nothing, 7 AS number, true AS yes, "
        "-1.50::DECIMAL(4, 2) AS exact, {'a': 1} AS struct, DATE '2026-03-31' AS day, 'nan'::DOUBLE AS share"
    )
    head, row = sql(query).splitlines()
    assert (" number " in head, "NULL" in row, " VARCHAR " in head) == (True, False, False)
    assert sql(query, "--format", "csv").splitlines() == [
        """"id","'@text","empty","nothing","number","yes","exact","struct","day","share\"""",
        """"007","'=cmd()","",,7,"true",-1.50,"{'a': 1}","2026-03-31",NaN""",
    ]
    assert as_json(query) == [
        {
            "id": "007", "@text": "=cmd()", "empty": "", "nothing": None, "number": 7, "yes": True,
            "exact": -1.5, "struct": {"a": 1}, "day": "2026-03-31", "share": None,
        }
    ]  # fmt: skip
    assert as_json("SELECT 1 AS n, 2 AS n, 3 AS N") == [{"n": 1, "n_1": 2, "N_2": 3}]
    assert sql("SELECT 'whole' AS text FROM range(50)").count("whole") == 50, "not on a screen"
    empty = "SELECT host_id FROM inventory_hosts WHERE false"
    assert (sql(empty, "--format", "csv"), as_json(empty)) == ('"host_id"\n', [])


@pytest.mark.parametrize("width", [80, 200])
def test_a_terminal_has_the_first_columns_that_it_has_room_for(sql, monkeypatch, width):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    columns = ", ".join(f"repeat('{chr(97 + n)}', 30) AS c{n}" for n in range(12))
    lines = sql(f"SELECT {columns} FROM range(50)").splitlines()  # noqa: S608  (made here)
    shown, last = lines[:41], " ".join(map(str.strip, lines[41:]))
    assert max(map(len, lines)) <= width
    fitting = {80: 3, 200: 6}[width]
    assert shown[0].split() == [f"c{n}" for n in range(fitting)]
    without = ", ".join(f"c{n}" for n in range(fitting, 12))
    assert last == f"Without the columns {without} and 10 more rows: --format csv prints all"
    few = sql("SELECT repeat('a', 30) AS a, repeat('b', 30) AS b, repeat('c', 30) AS c, 7 AS d, NULL AS e")
    assert few.splitlines()[2:] == ["    d 7"] * (width == 80), "a few columns are below the row"


@pytest.mark.parametrize(
    ("query", "row"),
    [
        (
            "SELECT 'asset-owners tune --audit-answers' AS filled_by, 'z' AS z",
            "asset-owners tune --audit-answers  z",
        ),
        ("SELECT 1 AS n, repeat('a', 76) AS a", "1  " + "a" * 74 + "…"),
        ("SELECT repeat('a', 50) AS a, bar(30, 0, 30, 30) AS p", "a" * 45 + "…  " + "█" * 30),
        ("SELECT repeat('a', 99) AS a, bar(60, 0, 60, 60) AS p", "a" * 23 + "…\n    p " + "█" * 60),
    ],
)
def test_a_terminal_cuts_no_text_that_has_room_and_never_a_bar(sql, monkeypatch, query, row):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert sql(query).partition("\n")[2] == f"  {row}\n"


def test_on_a_terminal_what_is_the_same_in_all_rows_gives_way_first(sql, monkeypatch):
    query = "SELECT 'acme' instance, 3 AS run, NULL AS note, repeat('x', {}) || n AS host FROM range(2) r(n)"
    narrow, wide = (query.format(width) for width in (40, 80))
    as_a_file = sql(wide)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert sql(narrow).splitlines()[0].split() == ["instance", "run", "note", "host"]
    head, *rows, same = sql(wide).splitlines()
    assert (head.split(), len(rows), same) == (
        ["host"],
        2,
        "  In each row: instance acme, run 3, nothing in note",
    )
    assert "acme" in as_a_file.splitlines()[1]


def test_on_a_terminal_ids_and_settings_of_a_whole_table_give_way_to_what_people_look_for(sql, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert sql("FROM runs").split()[:3] == ["kind", "started_at", "to_write"]
    assert sql("FROM owner_decisions").startswith("  hostname ")
    assert sql("FROM owner_decisions SELECT host_id, * EXCLUDE host_id").startswith("  host_id ")
    assert sql("SELECT TIMESTAMPTZ '2026-03-31 01:02:03.456Z' AS at").split() == [
        "at",
        "2026-03-31",
        "01:02:03+00",
    ]


def test_people_see_four_decimals_of_a_number_and_programs_all(sql, as_json):
    shown = {
        "47.55670087233686": "47.5567",
        "22.47500000000001": "22.475",
        "0.00001234567": "1.235e-05",
        "123456789.0": "123456789.0",
        "0.0": "0.0",
        "'nan'": "nan",
        "'-inf'": "-inf",
        "NULL": "",
    }
    query = "SELECT " + ", ".join(f"{text}::DOUBLE AS n{n}" for n, text in enumerate(shown))
    assert sql(query).splitlines()[1].split() == [text for text in shown.values() if text]
    assert "47.55670087233686,22.47500000000001,0.00001234567," in sql(query, "--format", "csv")
    assert as_json(query)[0]["n1"] == 22.47500000000001


def test_what_acts_on_a_terminal_is_escaped_there_and_goes_into_files_as_it_is(sql, monkeypatch):
    query = "SELECT 'a\x1b[2J\u202e' AS name"
    assert sql(query, "--format", "csv") == '"name"\n"a\x1b[2J\u202e"\n'
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert sql(query, "--format", "csv") == '"name"\n"a\\x1b[2J\\u202e"\n'
    assert all(line.isprintable() for line in sql(query).splitlines())
    # A query that fails on its way is not a wrong argument.
    refused = sql("SELECT 'a\x1b[2J\nasset-owners: all is well'::INT", status=1)
    assert all(line.isprintable() for line in refused.splitlines())
    assert not any(line.startswith("asset-owners: all") for line in refused.splitlines())


def test_on_a_machine_where_no_run_has_been_the_tables_of_the_store_are_asked(second_machine, as_json):
    count = "SELECT count(*) AS number FROM head_office.inventory_hosts"
    for arguments in ((), ("--instance", "head_office")):
        assert as_json(count, *arguments) == [{"number": 2}]
    assert as_json("SELECT host_id FROM inventory_hosts", "--run", "0644f428-later") == [{"host_id": "c"}]
    assert (second_machine / "warehouse.duckdb").exists()


def test_at_a_terminal_duckdbs_shell_starts_on_the_same_tables(home, monkeypatch):  # noqa: ARG001
    monkeypatch.setattr(sys, "stdin", Mock(isatty=lambda: True))
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", started := Mock(return_value=Mock(returncode=3)))
        options = {"instance": None, "form": "table"}
        assert command.sql(None, **options) == 3
    query = "CREATE TABLE mine AS FROM inventory_hosts; SELECT count(*) AS n FROM mine"
    line = [*started.call_args.args[0], "-csv", "-c", query]
    shell = subprocess.run(line, capture_output=True, text=True, check=True)  # noqa: S603  (its own)
    assert shell.stdout.endswith("2\n")


# The view audit_log: what was done, by whom and why


def test_each_run_write_and_acknowledgement_has_a_row_with_who_did_it_and_why(
    call, catalogued, tmp_path, monkeypatch
):
    tables = Tables(tmp_path / "home", "head_office")
    monkeypatch.setenv("SUDO_USER", "olga")
    row = tables.rows("runs", RUN).with_columns(options=pl.lit('{"reason": "a loan"}'))
    tables.append("runs", row, run_id=RUN)
    writes = tables.rows("owner_writes", RUN).with_columns(by=pl.lit("user kim"))
    tables.append("owner_writes", writes, run_id=RUN)
    of_it = ("--instance", catalogued)
    assert call("conflicts", *of_it, "--acknowledge", "h2", "--note", "known")[0] == 0
    query = f"FROM audit_log AS log WHERE log.at >= '{NOW:%Y-%m-%d}'"
    status, printed, error = call("sql", *of_it, "--format", "json", query)
    assert status == 0, error
    run, write, acknowledged = json.loads(printed)
    assert [*run] == [*write] == [*acknowledged] == [*VIEWS["audit_log"].columns]
    assert (run["id"], run["kind"], run["written"]) == (f"head_office/{RUN}", "run", 1)
    expected = {
        "id": f"head_office/{RUN}/h1",
        "by": "user kim",
        "reason": "a loan",
        "type": "write",
        "host_id": "h1",
    }
    assert expected.items() <= write.items()
    assert write["new_values"]["owner"] == "u1"
    by_somebody = {"type": "acknowledged_conflict", "reason": "known", "by": "user olga"}
    assert by_somebody.items() <= acknowledged.items()
    later = call("sql", *of_it, "--format", "json", "FROM audit_log AS log WHERE log.at >= '2999-01-01'")
    assert json.loads(later[1]) == []
