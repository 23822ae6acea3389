"""What commands that only read start from: the instance, and its tables of an earlier run."""

import logging
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from ownership.persons import Persons
from ownership.rules import Rules
from pipelines.dagster_gaps.log_lines import LOGGER, json_line
from resources.errors import AssetOwnersError, ConfigurationError
from resources.settings import Instance, command_line, load_instance, logs_as_json
from resources.store.tables import SNAPSHOTS, Tables, short_run_id, tables_of


def own_tables(instance: Instance) -> Tables:
    """Return the tables of an instance; an error if they belong to another one."""
    tables = tables_of(instance)
    tables.require_own()
    return tables


def stored_tables(path: Path, run: str | None = None) -> tuple[Instance, Tables]:
    """Load an instance file and find its tables, as the last run left them or a given one saw them.

    Where no run was allowed to write yet, they are those of the last dry run, and standard error says so.
    """
    instance = load_instance(path)
    return instance, _stored(instance, own_tables(instance), run)


@contextmanager
def held_tables(path: Path, run: str | None = None) -> Generator[tuple[Instance, Tables]]:
    """Yield the same; nobody is forgotten, and nothing removed, until what follows from them is stored."""
    instance = load_instance(path)
    with holding(own_tables(instance)) as tables:
        yield instance, _stored(instance, tables, run)


@contextmanager
def holding(tables: Tables) -> Generator[Tables]:
    """Hold tables as they are; what is read before that may be of somebody who is forgotten meanwhile."""
    with ExitStack() as held:
        with suppress(OSError):  # nothing is stored, or an analyst looks, who can store nothing here
            held.enter_context(tables.changing(existing=True))
        yield tables


def _stored(instance: Instance, tables: Tables, run: str | None) -> Tables:
    if not tables.are_prepared():
        begin = command_line(instance, "run", "--dry-run")
        raise AssetOwnersError(f"{instance.name} has no tables; begin with {begin}")
    if run and not tables.holds("owner_decisions", run_id := tables.run_id(run)):
        raise ConfigurationError(
            f"RUN_ID: run {run_id} decided nothing, such as an undo, or its decisions are no longer kept. "
            "What it wrote: "
            + command_line(instance, "sql", "--run", short_run_id(run_id), "FROM write_history")
        )
    return as_of_run(_readable(tables), run)


def _readable(tables: Tables) -> Tables:
    """Return the tables, with the copies in place of the ledger where that cannot be read."""
    try:
        tables.has_written("")
    except AssetOwnersError as error:
        note(f"Runs and writes are shown as they were published last: {error}")
        return replace(tables, published=True)
    return tables


def as_of_run(tables: Tables, run: str | None) -> Tables:
    """Return the tables as of a run; a note on standard error names those that are no longer kept.

    `run` is an id or its first characters; None: the last run that published, else the last dry run.
    """
    name = tables.name or tables.slug
    if run is None:
        shown = tables.visible()
        if planned := shown.viewed:
            note(f"PLAN of run {short_run_id(planned)} of {name}: no run has been allowed to write yet.")
        return shown
    run_id = tables.run_id(run)
    lost = [table for table in SNAPSHOTS if not tables.holds(table, run_id)]
    if lost and tables.published_run() != run_id:
        note(
            f"Of run {short_run_id(run_id)} these tables are not kept and are shown as the last run left "
            f"them: {', '.join(lost)}."
        )
    return tables.view(run_id)


def persons_of(tables: Tables, rules: Rules) -> Persons:
    """Return the persons whom the tables of a run know."""
    return Persons(rules, ((name, tables.read(name).collect()) for name in (*SNAPSHOTS, "current_owners")))


def note(text: str) -> None:
    """Print something beside the answer, unless only that is asked for."""
    if logging.getLogger(LOGGER).isEnabledFor(logging.WARNING):
        line = json_line(text, level="warning") if logs_as_json() else f"asset-owners: {text}"
        print(line, file=sys.stderr)
