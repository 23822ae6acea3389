"""What commands that only look start from: the instance, and its tables of an earlier run."""

import sys
from pathlib import Path

from resources.errors import AssetOwnersError, ConfigurationError
from resources.settings import Instance, command_line, home, load_instance, tables_location
from resources.store.files import require_bucket
from resources.store.tables import Tables, short_run_id

SNAPSHOTS = (
    "owner_decisions",
    "inventory_hosts",
    "inventory_users",
    "host_user_shares",
    "username_matches",
)
"""What a run works on and decides; of a run that published, only its decisions are kept."""


def tables_of(instance: Instance) -> Tables:
    """The instance's tables, where the environment says that they lie.

    Raises:
        ConfigurationError: there are tables of another instance.
    """
    tables = Tables(
        home(),
        instance.slug,
        name=instance.name,
        target=instance.platform.place,
        file=instance.file,
        location=tables_location(),
    )
    tables.require_own()
    return tables


def stored_tables(path: Path, run: str | None = None) -> tuple[Instance, Tables]:
    """Load an instance file and find its tables, as the last run left them or a given one saw them.

    Where no run was allowed to write yet, they are those of the last dry run, and standard error says so.

    Args:
        path: the instance file.
        run: id of a run, or its first characters; None: the last one.

    Raises:
        ConfigurationError: the instance file is wrong, the tables are another instance's, or there is no such
            run, or it decided nothing.
        AssetOwnersError: no run has decided anything yet, or the bucket of the tables does not exist.
    """
    instance = load_instance(path)
    tables = tables_of(instance)
    if not tables.exist():
        require_bucket(tables_location())
        raise AssetOwnersError(
            f"{instance.name} has no tables yet; run it first: {command_line(instance, 'run')}"
        )
    if run and not tables.holds("owner_decisions", run_id := tables.run_id(run)):
        raise ConfigurationError(
            f"RUN_ID: run {run_id} decided nothing, such as an undo, or its decisions are no longer kept. "
            "What it wrote: "
            + command_line(instance, "sql", "--run", short_run_id(run_id), "FROM write_history")
        )
    return instance, viewed(tables, run)


def viewed(tables: Tables, run: str | None) -> Tables:
    """The tables as a run saw them; what is no longer kept of it is told on standard error.

    Args:
        tables: of the instance.
        run: id of a run, or its first characters; None: the last one that published, else the last dry run.

    Raises:
        ConfigurationError: there is no such run.
    """
    if run is None:
        if (planned := tables.last_unpublished_run()) is None:
            return tables
        applied = tables.carried_out_by(planned)
        note(
            f"No run of {tables.name or tables.slug} has been allowed to write yet; this is what run "
            f"{short_run_id(planned)} planned."
            if applied is None
            else f"This is what run {short_run_id(planned)} of {tables.name or tables.slug} planned, and run "
            f"{short_run_id(applied)} wrote."
        )
        return tables.view(planned)
    run_id = tables.run_id(run)
    published = tables.read("owner_decisions").head(1).collect()["run_id"].to_list()
    lost = [table for table in SNAPSHOTS if not tables.holds(table, run_id)]
    if "owner_decisions" in lost:
        note(
            f"Run {short_run_id(run_id)} decided nothing, or its decisions are no longer kept: only what it "
            "wrote or planned is shown; all else is as the last run left it."
        )
    elif lost and published != [run_id]:
        note(
            f"Of run {short_run_id(run_id)} these tables are not kept and are shown as the last run left "
            f"them: {', '.join(lost)}."
        )
    return tables.view(run_id)


def note(text: str) -> None:
    """Tell something beside the answer."""
    print(f"asset-owners: {text}", file=sys.stderr)
