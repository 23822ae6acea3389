import re

import duckdb
import polars as pl
import pytest

from docs.make.cookbook import PAGE, RECIPE, answered, fill
from pipelines.cli.sql import opening_lines, sql
from resources.store.tables import Tables
from sandbox.stored_run import store_run
from tests.ownership.builders import NOW, PEOPLE, RUN, counts, host, hosts, resolution

pytestmark = pytest.mark.slow

TEXT = PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A home with the demo's tables."""
    home = tmp_path_factory.mktemp("demo")
    fill(home)
    return home


def test_the_answers_are_what_the_demos_tables_give(demo):
    assert answered(TEXT, demo) == TEXT, "run `make docs`"


@pytest.fixture
def asked(demo, monkeypatch, capsys):
    """Ask as on a terminal of 80 columns; return the lines that the command prints."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(demo))
    monkeypatch.setenv("COLUMNS", "80")

    def lines(query):
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        assert sql(query, form="table") == 0
        return capsys.readouterr().out.splitlines()

    return lines


@pytest.mark.parametrize("recipe", RECIPE.findall(TEXT), ids=re.findall(r"^## (\d+)\.", TEXT, re.MULTILINE))
def test_a_terminal_of_80_columns_shows_what_the_page_shows_each_row_in_one_uncut_line(asked, recipe):
    query, answer = recipe
    lines, shown = asked(query), answer.removesuffix("  …\n").splitlines()
    assert len(shown) >= 2, "head and a row at least"
    assert lines[: len(shown)] == shown
    assert "…" not in "".join(lines)
    assert [line for line in lines if len(line) > 80 or line.startswith("    ")] == []


def test_a_working_day_is_thin_that_has_few_events_or_many_without_names():
    (query,) = [recipe[1] for recipe in RECIPE.finditer(TEXT) if "is_thin" in recipe[1]]
    days = "SELECT DATE '2026-03-02' + i::INT AS day, 'x' AS log, {} FROM range(13) AS of_days(i)"
    counted = "if(i = 1, 300, 700) AS matching, if(i = 3, 50, 3) AS lacking_user, 0 AS lacking_host"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE logon_days AS {days.format(counted)}")
        found = [(row[0].day, row[-1]) for row in connection.execute(query).fetchall()]
    assert found == [(3, True), (5, True), (2, False)]


@pytest.mark.parametrize("query", re.findall(r'^    asset-owners sql "(FROM [^"]+)"', TEXT, re.MULTILINE))
def test_the_questions_between_the_recipes_have_rows_that_fit(asked, query):
    lines = asked(query)
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80


def test_the_lines_for_other_clients_are_those_that_the_command_uses(demo):
    lines = "\n".join(opening_lines(demo, "demo"))
    shown = lines.replace(str(demo), "$ASSET_OWNERS_HOME")
    assert shown.replace("demo", "head_office") in TEXT


def test_the_lines_for_notebooks_give_rows(demo):
    lines = re.findall(r"^(?:duckdb|polars)\..*", TEXT, re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        here = line.replace("$ASSET_OWNERS_HOME", str(demo)).replace("head_office", "demo")
        assert eval(here, {"duckdb": duckdb, "polars": pl}).shape[0]  # noqa: S307  (our page's)


def test_the_owner_of_a_host_with_several_names_is_found_by_any_of_them(tmp_path):
    """The names of the asset and of its logons differ, as where a machine was renamed."""
    tables = Tables(tmp_path, "corp")
    tables.prepare()
    assets = hosts(host("h1", "old-name", "new-name", owners=("u2",)), host("h2", "unowned"))
    resolved = resolution(counts(("new-name", "ann", 3), ("unowned", "ann", 1)), PEOPLE, assets)
    store_run(tables, resolved, run_id=RUN, decided_at=NOW, hosts=assets, users=PEOPLE)
    (query,) = [recipe[1] for recipe in RECIPE.finditer(TEXT) if "recorded_owner" in recipe[1]]
    with duckdb.connect() as connection:
        for line in opening_lines(tmp_path):
            connection.execute(line)
        found = connection.execute(query.replace("aricci", "ann")).fetchall()
    assert [(row[0], row[-1]) for row in found] == [("new-name", "bob@corp.example"), ("unowned", None)]
