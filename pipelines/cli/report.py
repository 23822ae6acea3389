"""`asset-owners report`: what the last run found, as a page or a sheet of its hosts."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from ownership.names import printable
from pipelines.cli.files import write_file
from pipelines.cli.options import InstanceFile, RunId, file_option, held_tables, print_lines
from reports.exports import as_xlsx, hosts_as_csv
from reports.run_results import hosts_in_words
from resources.settings import home


def report(
    path: InstanceFile,
    out: Annotated[
        Path | None,
        file_option(
            "The file to write or replace, - for standard output.",
            default="reports/NAME.FORMAT in ASSET_OWNERS_HOME; a plan has PLAN in it, --run its id",
        ),
    ] = None,
    kind: Annotated[
        Literal["html", "xlsx", "csv"] | None,
        typer.Option("--format", help="A page, or a sheet of hosts.", show_default="as FILE ends, or html"),
    ] = None,
    *,
    run: RunId = None,
) -> None:
    """Write the report into a file, readable by its owner alone.

    The page needs no network. CSV has an apostrophe before whatever a spreadsheet could run as a formula,
    also after ; or a tab; `sql --format json` has every name as it is.

    Example: --instance NAME --out report.html
    """
    from assets_defs.report import Report, report_file

    form = kind or (out.suffix[1:].lower() if out else "html")
    with held_tables(path, run) as (instance, tables):
        made = Report(instance, tables)
        if form == "xlsx":
            content = as_xlsx(made.sheet(), title="Hosts (PLAN)" if made.is_plan else "Hosts")
        elif form == "csv":
            content = hosts_as_csv(made.sheet()).encode()
        else:
            content = made.html().encode()
        if out == Path("-"):
            sys.stdout.buffer.write(content)
            return
        if out is None:
            run_id = tables.run_id(run) if run else ""
            out = report_file(instance.slug, home(), kind=form, run=run_id, plan=made.is_plan)
            out.parent.mkdir(exist_ok=True, mode=0o700)
        write_file("--out", out, content)
    what, assets = "the plan" if made.is_plan else "the report", made.hosts_now["host_id"]
    number = hosts_in_words(assets.count(), assets.null_count())
    print_lines([f"{out} is written: {what} of {printable(instance.name)}, {number}"])
