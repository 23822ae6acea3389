"""`asset-owners report`: what the last run found, as a page or a table of its hosts."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from ownership.names import printable
from pipelines.cli.exit_status import write_file
from pipelines.cli.options import InstanceFile, RunId, file_option
from pipelines.cli.stored import stored_tables
from reports.exports import BOM, as_csv, as_xlsx
from resources.settings import home
from resources.store.tables import short_run_id


def report(
    path: InstanceFile,
    out: Annotated[
        Path | None,
        file_option(
            "The file to write or replace, - for standard output.",
            default="reports/NAME.FORMAT in ASSET_OWNERS_HOME, NAME.RUN.FORMAT with --run",
        ),
    ] = None,
    kind: Annotated[
        Literal["html", "xlsx", "csv"], typer.Option("--format", help="A page, or a table of all hosts.")
    ] = "html",
    *,
    run: RunId = None,
) -> None:
    """Write the report into a file, readable by its owner alone.

    The page needs no network. CSV has an apostrophe before whatever a spreadsheet could run as a formula,
    also after ; or a tab; `sql --format json` has every name as it is.

    Example: --instance NAME --out report.html
    """
    from assets_defs.report import Report, report_file, report_sheet

    instance, tables = stored_tables(path, run)
    decisions = tables.read("owner_decisions").collect()
    if kind == "html":
        content = Report(instance, tables).html()
    else:
        table = report_sheet(instance, tables)
        content = BOM + as_csv(table) if kind == "csv" else as_xlsx(table, title="Hosts")
    content = content if isinstance(content, bytes) else content.encode()
    if out == Path("-"):
        sys.stdout.buffer.write(content)
        return
    if out is None:
        of_run = f".{short_run_id(tables.run_id(run))}" if run else ""
        out = report_file(instance, home()).with_name(f"{instance.slug}{of_run}.{kind}")
        out.parent.mkdir(exist_ok=True, mode=0o700)
    write_file("--out", out, content)
    print(f"{out} is written: {decisions.height:,} decisions of {printable(instance.name)}")
