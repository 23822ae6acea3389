"""What `asset-owners sandbox` does: run both services, show the demo, open the Dagster UI on them."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipelines.cli.serve import serve
from resources.settings import command_line, home, load_instance, slug_of
from resources.store.catalogue import catalogue_path
from sandbox.stand import NAME, running_sandbox

WIDTH_OF_FILES = 140

DECISIONS = """\
SELECT evidence, coalesce(match, '-') AS match, action, count(*) AS hosts,
       min_by(hostname, coalesce(host_id, hostname)) AS example,
       min_by(username, coalesce(host_id, hostname)) AS user,
       min_by(events || ' of ' || total_events, coalesce(host_id, hostname)) AS logons,
       min_by(matched_by, coalesce(host_id, hostname)) AS matched_by
FROM demo.owner_decisions GROUP BY ALL ORDER BY hosts DESC, evidence, action, match
"""


def up(*, fresh: bool) -> None:
    """Run both services until Ctrl-C."""
    with _until_stopped(), running_sandbox(home(), fresh=fresh, progress=_say) as sandbox:
        folder = home() / "sandbox"
        _say(f"search service     {sandbox.engine.url}  user {sandbox.engine.reader.username}")
        _say(f"inventory service  {sandbox.inventory.url}  accounts integration, reader, coded @corp.example")
        _say(f"passwords and the certificate authority are in {folder}")
        _say(f"try: {_to_paste(sandbox.instance_file, 'run', '--dry-run')}")
        while True:
            time.sleep(3600)


def demo() -> None:
    """Fill in the owners of a made-up company, twice, and show every decision with its reasons."""
    for variable in ("ASSET_OWNERS_TABLES", "ASSET_OWNERS_JOURNAL"):
        os.environ.pop(variable, None)  # what is made up stays in the home
    shutil.rmtree(home() / "tables" / slug_of(NAME), ignore_errors=True)
    with _until_stopped(), running_sandbox(home(), fresh=True, progress=_say) as sandbox:
        run = ["asset-owners", "run", "--instance", str(sandbox.instance_file)]
        _say("first run: fetch, decide, write")
        _run(run)
        with duckdb.connect(catalogue_path(home()), read_only=True) as catalogue:
            _show("Decisions, one line a reason", catalogue.sql(DECISIONS))
        _say("second run: nothing is written twice")
        _run(run)
    _say("The sandbox is stopped. To look further:")
    commands = {
        _to_paste(None, "sandbox", "ui"): "the Dagster UI on the sandbox, at http://127.0.0.1:3000",
        _to_paste(None, "sandbox", "up"): "the sandbox alone",
        _to_paste(sandbox.instance_file, "explain", "lt-1001"): "why a host has its owner",
        _to_paste(sandbox.instance_file, "report"): "the last run as a page",
        _to_paste(None, "sql", "FROM demo.conflicts"): "the tables, also as CSV or JSON",
    }
    width = max(map(len, commands))
    for command, what in commands.items():
        print(f"  {command:<{width}}  # {what}")


def _to_paste(file: Path | None, command: str, *arguments: str) -> str:
    """A command for the shell that the reader is in, which may not know of this home."""
    chosen = os.environ.get("ASSET_OWNERS_HOME")
    prefix = f"ASSET_OWNERS_HOME={shlex.quote(chosen)} " if chosen else ""
    return prefix + command_line(load_instance(file) if file else None, command, *arguments)


def ui(*, port: int) -> None:
    """Run both services, the Dagster web server and its daemon, until Ctrl-C."""
    with _until_stopped(), running_sandbox(home(), fresh=False, progress=_say):
        serve("127.0.0.1", port)


def _run(command: Sequence[str]) -> None:
    """Run a program of this environment and end with its status when it fails."""
    program = Path(sys.executable).with_name(command[0])
    status = subprocess.run([program, *command[1:]], check=False).returncode  # noqa: S603  (our own programs)
    if status:
        raise typer.Exit(status)


@contextmanager
def _until_stopped() -> Generator[None]:
    """End well on Ctrl-C, and on SIGTERM alike, so that no process is left behind."""
    for signal_number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # a shell's background job begins with SIGINT ignored
        signal.signal(signal_number, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        _say("stopped")


def _say(text: str) -> None:
    print(f"sandbox: {text}", flush=True)


def _show(title: str, rows: duckdb.DuckDBPyRelation) -> None:
    table = Table(title=title, title_justify="left")
    for column in rows.columns:
        table.add_column(column, overflow="fold")
    for row in rows.fetchall():
        table.add_row(*("" if value is None else escape(str(value)) for value in row))
    Console(width=None if sys.stdout.isatty() else WIDTH_OF_FILES).print(table)
