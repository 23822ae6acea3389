"""What an analyst finds in the catalogue beside the tables' rows: descriptions, and views over them."""

import shutil
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import polars as pl
import pytest

from ownership.decisions import least_certain_first
from ownership.declaration import column_descriptions, description, polars_schema
from ownership.tables import TABLES
from resources.store.catalogue import RESERVED, VIEWS, catalogue_path, quotes_needed
from resources.store.files import write_file
from resources.store.tables import Tables
from sandbox.stored_run import store_run
from tests.ownership.builders import counts, host, hosts, resolution, user, users
from tests.resources.writeback.world import plan, values

SLUG = "corp"
PEOPLE = users(
    user("u1", email="ann@corp.example", user_department="Sales"),
    user("u2", email="bob@corp.example"),
    user("u3", sam="cyd"),
)
LOGONS = counts(
    ("new", "ann", 5),
    ("agreed", "bob", 5),
    ("taken", "ann", 9), ("taken", "bob", 1),
    ("taken by two", "cyd", 2),
)  # fmt: skip
ASSETS = hosts(
    host("h-new", "new", department="Store"),
    host("h-agreed", "agreed", owners=("u2",)),
    host("h-taken", "taken", owners=("u2",)),
    host("h-two", "taken by two", owners=("u2", "u1")),
)


def instant(day):
    return datetime(2026, 3, 30, 12, tzinfo=UTC) + timedelta(days=day)


def run(tables, day, logons=LOGONS):
    """Decide and publish as a run so many days after the first one would."""
    decided: Any = {"run_id": f"run-{day}", "decided_at": instant(day)}
    resolved = resolution(logons, PEOPLE, ASSETS, **decided)
    store_run(tables, resolved, hosts=ASSETS, users=PEOPLE, **decided)


@pytest.fixture(scope="module")
def after_a_run(prepared, tmp_path_factory):
    """A copy of the home after the first run, which takes longer than most tests."""
    tables, empty_home = prepared
    shutil.copytree(empty_home, tables.home, dirs_exist_ok=True)
    run(tables, 0)
    return shutil.copytree(tables.home, tmp_path_factory.mktemp("after a run") / "home")


@pytest.fixture
def decided(after_a_run, tables):
    shutil.copytree(after_a_run, tables.home, dirs_exist_ok=True)
    return tables


def session(home):
    return closing(duckdb.connect(catalogue_path(home), read_only=True))


def ask(tables, query):
    with session(tables.home) as connection:
        return connection.sql(query.replace("FROM ", f"FROM {SLUG}.")).fetchall()


def test_tables_and_views_are_described_and_have_their_columns_and_no_rows_before_the_first_run(tables):
    described = {name: (description(table), column_descriptions(table)) for name, table in TABLES.items()}
    described |= {name: (view.comment, view.columns) for name, view in VIEWS.items()}
    query = "SELECT column_name, comment FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index"
    with session(tables.home) as connection:
        views = connection.sql("SELECT view_name, comment FROM duckdb_views() WHERE NOT internal").fetchall()
        for name, (_, columns) in described.items():
            assert connection.execute(query, [name]).fetchall() == list(columns.items())
            assert connection.sql(f"FROM {SLUG}.{name}").fetchall() == []
            assert all(columns.values())
    kinds = (
        "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category IN ('reserved', 'type_function')"
    )
    words = {word for (word,) in duckdb.execute(kinds).fetchall()}
    assert words & {column for _, columns in described.values() for column in columns} == RESERVED
    assert '"by"' in dict(views)["runs"]
    unfilled = {name: " Not filled yet." for name, table in TABLES.items() if table.__filled_by__}
    assert dict(views) == {
        name: comment + unfilled.get(name, "") + quotes_needed(columns)
        for name, (comment, columns) in described.items()
    }
    assert all(dict(views).values())
    assert VIEWS["conflicts"].columns["note"] == described["acknowledged_conflicts"][1]["note"]


def schemas(home):
    with session(home) as connection:
        query = "SELECT DISTINCT schema_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL"
        return [name for (name,) in connection.sql(query).fetchall()]


def test_the_first_run_of_an_instance_leaves_the_views_of_others_alone(tables):
    """To make those of 200 again takes longer than a run; and here it would fail."""
    damaged = tables.disk / "owner_decisions.parquet"
    damaged.write_bytes(b"no table")
    Tables(tables.home, "new").prepare()
    with session(tables.home) as connection:
        assert connection.sql("FROM new.owner_decisions").fetchall() == []


def of_another_version(catalogue):
    with closing(duckdb.connect(catalogue)) as older:
        older.execute(f"CREATE OR REPLACE MACRO {SLUG}.views_version() AS 'older'")
        older.execute(f"COMMENT ON COLUMN {SLUG}.owner_writes.message IS NULL")


@pytest.mark.parametrize(
    "spoil",
    [
        of_another_version,
        lambda catalogue: catalogue.write_bytes(catalogue.read_bytes()[:10_000]),
        lambda _: None,  # the home lies elsewhere now
    ],
)
def test_views_of_another_version_or_damaged_ones_are_made_anew(tables, tmp_path, spoil):
    home = tmp_path / "home"
    shutil.copytree(tables.home, home)
    spoil(catalogue_path(home))
    Tables(home, SLUG).prepare()
    with session(home) as connection:
        query = "SELECT count(*) FROM duckdb_columns() WHERE NOT internal AND comment IS NULL"
        assert connection.sql(query).fetchall() == [(0,)]
        assert connection.sql(f"FROM {SLUG}.owner_decisions").fetchall() == []


INJECTION = 'x"; CREATE TABLE proof AS SELECT 1; --'


def test_folders_that_no_instance_has_stay_unchanged(tables):
    """And an instance whose tables are deleted goes with the next run."""
    for name in (INJECTION, "old copy", "main", "A", "a__b", "_a", "lost+found", "é"):
        shutil.copytree(tables.disk, tables.disk.parent / name)
    for slug in ("added", "deleted"):
        Tables(tables.home, slug).prepare()
    assert schemas(tables.home) == ["added", SLUG, "deleted"]
    shutil.rmtree(tables.disk.with_name("deleted"))
    tables.prepare()
    assert schemas(tables.home) == ["added", SLUG]
    with session(tables.home) as connection:
        assert connection.sql("FROM duckdb_tables()").fetchall() == []


def test_conflicts_name_both_sides_and_the_strength_of_the_evidence(decided):
    assert ask(decided, "SELECT DISTINCT is_new, since FROM conflicts") == [(True, instant(0))]
    run(decided, 3, logons=LOGONS.with_columns(events=pl.col("events") * 2))
    found = ask(
        decided,
        "SELECT hostname, host_id, existing_owner, existing_owner_email, username, resolved_owner, "
        "resolved_owner_email, matched_by, events, total_events, share, user_count, runner_up_username, "
        "runner_up_events, since, is_new FROM conflicts",
    )
    two = "ann@corp.example, bob@corp.example"
    assert found == [
        ("taken by two", "h-two", "u2,u1", two, "cyd", "u3", None, "directory_user_sam_account_name",
         4, 4, 1.0, 1, None, None, instant(0), False),
        ("taken", "h-taken", "u2", "bob@corp.example", "ann", "u1", "ann@corp.example", "user_email",
         18, 20, 0.9, 2, "bob", 2, instant(0), False),
    ]  # fmt: skip


def test_the_write_history_shows_before_and_after_the_last_first(decided):
    for day, outcome in enumerate(("failed", "written")):
        row = plan("h-new", run_id=f"run-{day}", outcome=outcome, old=values(), new=values("u1", "Sales"))
        decided.append("owner_writes", row.with_columns(completed_at=instant(day)), run_id=f"run-{day}")
    columns = "run_id, host_id, outcome, owner_before, owner, owner_email, department_before, department"
    found = ask(decided, f"FROM write_history SELECT {columns}")
    what = (None, "u1", "ann@corp.example", None, "Sales")
    assert found == [("run-1", "h-new", "written", *what), ("run-0", "h-new", "failed", *what)]


def test_the_write_history_of_a_plan_begins_with_what_is_least_certain_as_python_sorts_it(decided):
    decisions = decided.read("owner_decisions").collect().drop_nulls("host_id")
    spread = pl.int_range(pl.len())  # so that each of the factors decides somewhere
    decisions = decisions.with_columns(host_days=9 - spread, user_days=5 + spread, idle_days=13 + spread % 2)
    decided.write("owner_decisions", decisions)
    rows = pl.concat([plan(host_id, run_id="dry", outcome="planned") for host_id in decisions["host_id"]])
    decided.append("owner_writes", rows, run_id="dry")
    found = [host_id for (host_id,) in ask(decided, "SELECT host_id FROM write_history")]
    assert found == least_certain_first(decisions)["host_id"].to_list() != sorted(found)


def wrote(tables, day, outcome="written", owner="u1", undoes=None, at=None):
    """A write of h-new so many days after the first run, or an undo of that day's."""
    row = plan("h-new", run_id=f"run-{day}", outcome=outcome, new=values(owner), undoes=undoes)
    row = row.with_columns(completed_at=instant(day if at is None else at))
    tables.append("owner_writes", row, run_id=f"run-{day}")


@pytest.mark.parametrize(
    ("undos", "standing"),
    [
        ([], [("run-2", "u2")]),
        ([(3, "run-1")], [("run-2", "u2")]),
        ([(3, "run-2")], []),
        ([(1.5, "run-2")], []),  # by a clock that was behind
    ],
)
def test_the_last_write_of_a_host_stands_unless_it_was_undone(decided, undos, standing):
    """Nor does the previous write stand then: its owner was gone when the host was written again."""
    wrote(decided, 1)
    wrote(decided, 2, owner="u2")
    for at, undoes in undos:
        wrote(decided, 3, "undone", "", undoes, at=at)
    wrote(decided, 4, "failed")
    assert ask(decided, "SELECT run_id, owner FROM writes_standing") == standing


def test_owners_who_are_not_user_assets_any_more_are_named_without_tuning(decided):
    decided.write("inventory_users", PEOPLE.filter(pl.col("user_id") != "u2"))
    decided.store_current_owners()
    owners = decided.read("current_owners").collect()
    forgotten = owners.head(1).with_columns(host_id=pl.lit("h-0"), owner_ids=["forgotten-0123456789abcdef"])
    decided.write("current_owners", pl.concat([owners, forgotten]))
    found = ask(decided, "SELECT host_id, owner, since, resolved_owner_email FROM owners_gone")
    ann = "ann@corp.example"
    assert found == [
        ("h-agreed", "u2", None, None),
        ("h-taken", "u2", None, ann),
        ("h-two", "u2", None, None),
    ]


@pytest.mark.parametrize(
    ("table", "filled"), [("threshold_backtest", "tune"), ("audit_sample", "tune --audit")]
)
def test_the_comment_of_a_table_of_tuning_says_what_fills_it_and_when_that_was(decided, table, filled):
    model = TABLES[table]
    row = dict.fromkeys(polars_schema(model)) | {"host_id": "h-new", "user_id": "u1", "right": False}
    rows = pl.DataFrame([row], schema_overrides=polars_schema(model)).select(polars_schema(model).names())
    write_file(rows, decided.folder / f"{table}.parquet")
    Tables(decided.home, SLUG).prepare()
    comments = "SELECT comment FROM duckdb_views() WHERE view_name = ?"
    with session(decided.home) as connection:
        [(comment,)] = connection.execute(comments, [table]).fetchall()
    assert f"Filled by `asset-owners {filled}`. Last filled {datetime.now(UTC):%Y-%m-%d} " in comment


def test_views_work_attached_under_any_name_beside_a_scratch_file(decided, tmp_path):
    """Also while a run stores decisions."""
    with decided.writing(), closing(duckdb.connect(tmp_path / "scratch.duckdb")) as analyst:
        analyst.execute(f"ATTACH '{catalogue_path(decided.home)}' AS any_name (READ_ONLY)")
        analyst.execute("SET search_path = 'scratch.main,any_name.corp'")
        analyst.execute("CREATE TABLE mine AS SELECT hostname FROM corp.conflicts")
        rows = {name: len(analyst.sql(f"FROM {name}")) for name in ("mine", *VIEWS)}
        with pytest.raises(duckdb.Error, match="read-only"):
            analyst.execute("DROP VIEW any_name.corp.conflicts")
    empty_ones = {"owners_gone": 0, "write_history": 0, "writes_standing": 0}
    assert rows == {"mine": 2, "audit_log": 1, "conflicts": 2, **empty_ones}
