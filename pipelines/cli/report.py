"""`asset-owners report`: what the last run found, as a page or a table of its hosts."""

import sys
from pathlib import Path
from typing import Literal

from assets_defs.report import report_file, report_html, report_sheet
from ownership.names import printable
from pipelines.cli.errors import write_file
from pipelines.cli.stored import stored_tables
from reports.exports import BOM, as_csv, as_xlsx, raw_decisions
from resources.errors import ConfigurationError
from resources.settings import home
from resources.store.tables import short_run_id

Format = Literal["html", "xlsx", "csv"]


def report(path: Path, out: Path | None, kind: Format, *, raw: bool = False, run: str | None = None) -> None:
    """Write the report into a file, readable by its owner alone; `-` for standard output."""
    if raw and kind == "html":
        raise ConfigurationError("--raw goes with --format xlsx or csv")
    instance, tables = stored_tables(path, run)
    decisions = tables.read("owner_decisions").collect()
    if kind == "html":
        content = report_html(instance, tables)
    else:
        table = raw_decisions(decisions) if raw else report_sheet(instance, tables)
        # What is raw is for programs, of which few know the mark.
        as_text = as_csv(table) if raw else BOM + as_csv(table)
        content = as_text if kind == "csv" else as_xlsx(table, title="Hosts")
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
