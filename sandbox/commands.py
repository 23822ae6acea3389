"""What `asset-owners sandbox` does: run both services, show the demo, open the Dagster UI on them."""

import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from pipelines.cli.leave import delete_beside_tables
from pipelines.cli.metrics import listen_at
from pipelines.cli.options import Port, flag, folded, number, print_lines
from pipelines.cli.serve import serve
from pipelines.dagster_gaps.log_lines import LOGGER
from pipelines.dagster_home import dagster_instance
from reports.sentences import display_names
from reports.tuning import audit_to_draw
from resources.errors import ConfigurationError
from resources.settings import Instance, command_line, home, load_instance, slug_of
from resources.store.tables import Tables, short_run_id, tables_of
from sandbox.draft import Expectation
from sandbox.stand import ACCOUNTS, NAME, SEARCH_PASSWORD, TENANT, Sandbox, running_sandbox

CODES = (
    "SELECT evidence, match, action, count(*) AS hosts FROM demo.owner_decisions GROUP BY ALL ORDER BY ALL"
)


Fresh = Annotated[
    bool, flag("--fresh", "Begin again with the demo's data of today; delete what runs stored.")
]


def up(
    *,
    fresh: Fresh = False,
    port: Annotated[
        int | None,
        number(
            "Port of the search service; the inventory service has the next one.",
            most=65534,
            default="those of last time",
        ),
    ] = None,
) -> None:
    """Run both services until Ctrl-C.

    Example: --port 9200
    """
    with _until_stopped(), _running(fresh=fresh, port=port) as sandbox:
        folder = home() / "sandbox"
        lines = [
            f"Search service: {sandbox.engine.url}, certificate authority {sandbox.engine.ca_file}",
            f"- {sandbox.engine.reader.username}: may search, password in {folder / SEARCH_PASSWORD}",
            f"Inventory service: {sandbox.inventory.url}, tenant {TENANT}",
        ]
        for name, may in ACCOUNTS.items():
            lines.append(f"- {name}@corp.example: {may}, password in {folder / f'{name}-password'}")
        print_lines([*lines, "Both run until Ctrl-C. To try them, in another terminal:"])
        tables = Tables(home(), slug_of(NAME))
        runs = tables.all_runs("runs").filter(pl.col("written") > 0).sort("started_at").tail(1).collect()
        wrote = runs.filter(pl.col("kind") != "undo")["run_id"].to_list()
        plan = ("undo", short_run_id(wrote[0])) if wrote else ("run",)
        print(f"    {_to_paste(sandbox.instance_file, *plan, '--dry-run')}", flush=True)
        while True:
            time.sleep(3600)


def demo() -> None:
    """Plan the owners of a made-up company, write them, and tell how many are right and what to look at.

    Each time anew: what an earlier demo left is deleted.
    """
    for variable in ("ASSET_OWNERS_TABLES", "ASSET_OWNERS_JOURNAL"):
        os.environ.pop(variable, None)  # what is made up stays in the home
    log = home() / "sandbox" / "demo.log"
    with _until_stopped(), _running(fresh=True) as sandbox:
        log.unlink(missing_ok=True)
        _progress("a dry run: fetch, decide, plan")
        planned = _run(log, "run", "--dry-run", file=sandbox.instance_file)
        print_lines(planned.partition("Let a colleague check")[0].splitlines())  # what is written
        tables = Tables(home(), slug_of(NAME))
        plan = tables.last_run_that_decided() or ""
        _progress("write this plan")
        _run(log, "apply", plan, file=sandbox.instance_file)
        written = tables.writes().filter(outcome="written").collect()
        decisions = tables.read_own("owner_decisions", plan)
        audit = audit_to_draw(decisions.filter(action="write").height, written.height)
        names = display_names(tables.read("inventory_users", run_id=plan).collect())
        happened = _happened(decisions, written, sandbox.truth, names)
        print_lines(["", *happened, "", "To look further:"])
        # As the program was called, whose path the other commands have.
        shown = str(log) if Path(sys.argv[0]).is_absolute() else os.path.relpath(log)
        commands = {
            "why a host has its owner": _to_paste(sandbox.instance_file, "explain", "lt-1001"),
            "all hosts as a page": _to_paste(sandbox.instance_file, "report"),
            "a sample for a colleague to check": _to_paste(sandbox.instance_file, *audit),
            "how many owners may be wrong": _to_paste(sandbox.instance_file, "tune"),
            "each reason and its number of hosts, and unknown names": _to_paste(None, "sql", CODES),
            "what the runs said, with their warnings": f"less {shlex.quote(shown)}",
            "both services again, for runs and undo in another terminal": _to_paste(None, "sandbox", "up"),
            "the same anew, with nothing written": _to_paste(None, "sandbox", "up", "--fresh"),
            "or, instead of that, both with Dagster's UI (--fresh: with something to plan)": _to_paste(
                None, "sandbox", "ui"
            ),
            "an instance file for services of your own": _to_paste(None, "init"),
        }
        for what, command in commands.items():
            print(f"  {what}:\n    {command}")


@contextmanager
def _running(*, fresh: bool, port: int | None = None) -> Generator[Sandbox]:
    """Run both services; `fresh`: with the demo's data of today, and nothing stored of earlier runs.

    Raises:
        ConfigurationError: what would be deleted is about other services, which somebody wrote into the file.
    """
    with running_sandbox(home(), fresh=fresh, port=port, progress=_progress) as sandbox:
        if fresh:
            instance = load_instance(sandbox.instance_file)
            if instance.platform.url != sandbox.inventory.url:
                raise ConfigurationError(
                    f"{sandbox.instance_file}: platform.url names another service than the demo's. Nothing "
                    "was deleted or written. Move the file, and give it another name"
                )
            _forget_last_time(instance)
        yield sandbox


def _forget_last_time(instance: Instance) -> None:
    """Delete the tables of the demo, and what Dagster shows of their runs."""
    if not (tables := home() / "tables" / instance.slug).exists():
        return
    _progress("starts the demo anew: deletes the tables of last time with plans, undos and answers")
    from assets_defs.cleanup import delete_runs, runs_of  # noqa: PLC0415  (--help does not wait for Dagster)

    shutil.rmtree(tables, ignore_errors=True)
    with dagster_instance(home()) as dagster:
        delete_runs(dagster, runs_of(dagster, instance.name, finished=False))  # of a demo that was cut off
        delete_beside_tables(instance, tables_of(instance), dagster, really=True)


def _happened(
    decisions: pl.DataFrame,
    written: pl.DataFrame,
    truth: Mapping[str | None, Expectation],
    names: Mapping[str, str],
) -> Iterator[str]:
    """Return what became of a plan, judged by `truth`; `names` has those of user assets."""
    given = written.select("host_id", pl.col("new_values").struct.field("owner")).rows()
    wrong = [truth[host_id] for host_id, owner in given if truth[host_id].whose != owner]
    yield f"Hosts in the inventory: {decisions['host_id'].count()}"
    yield f"{len(given) - len(wrong)} of {len(given)} written owners are right (the demo knows the true ones)"
    wrong.sort(key=lambda row: (row.scenario, row.hostname or ""))
    for scenario, rows in groupby(wrong, lambda row: row.scenario):
        hosts = [*rows]
        theirs, others = (names.get(who or "", who) for who in (hosts[0].whose, hosts[0].resolved_owner))
        example = f"{hosts[0].hostname} is {theirs}'s, but most logons are {others}'s"
        yield f"Wrong, {scenario}: {', '.join(row.hostname or '' for row in hosts)}. {example}"
    yield "`explain` says why each was chosen"
    conflicts = decisions.filter(action="conflict").height
    yield f"Conflicts: {conflicts} hosts have another owner than their primary user, and keep theirs"


def _to_paste(file: Path | None, command: str, *arguments: str) -> str:
    """Return a command for the shell that the reader is in, which may not know of this home."""
    chosen = os.environ.get("ASSET_OWNERS_HOME")
    prefix = f"ASSET_OWNERS_HOME={shlex.quote(chosen)} " if chosen else ""
    return prefix + command_line(load_instance(file) if file else None, command, *arguments)


def ui(*, fresh: Fresh = False, port: Port = 3000) -> None:
    """Run both services, the Dagster web server and its daemon, until Ctrl-C.

    Example: --port 3001
    """
    listen_at("--port", "127.0.0.1", port).close()  # before an engine is started
    with _until_stopped(), _running(fresh=fresh):
        _progress("runs from the UI need both services, which end when this does")
        serve(port=port)


def _run(log: Path, command: str, *arguments: str, file: Path) -> str:
    """Run a job of the instance as a shell would; return what it prints. Its log is kept."""
    with log.open("a", encoding="utf-8") as errors:
        words = [sys.executable, sys.argv[0], command, "--instance", str(file), *arguments]
        done = subprocess.run(words, check=False, stdout=subprocess.PIPE, stderr=errors, text=True)  # noqa: S603  (our own program)
    if done.returncode:
        print(log.read_text(encoding="utf-8"), file=sys.stderr)
        raise typer.Exit(done.returncode)
    return done.stdout


@contextmanager
def _until_stopped() -> Generator[None]:
    """End well on Ctrl-C, and on SIGTERM alike, so that no process is left behind."""
    # A shell's background job begins with SIGINT ignored.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        _progress("stopped")


def _progress(text: str) -> None:
    """Say how far it is, unless only results are asked for."""
    if logging.getLogger(LOGGER).isEnabledFor(logging.WARNING):
        _say(text)


def _say(text: str) -> None:
    print(folded(f"sandbox: {text}"), flush=True)
