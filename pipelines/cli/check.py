"""`asset-owners check`: try both services without writing, and tell what works and what to fix.

What is tried is what a run relies on: each service's package knows it.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assets_defs.run import today_of, window_of
from pipelines.cli.stored import tables_of
from pipelines.dagster_home import dagster_folder
from resources.findings import Finding, State
from resources.inventory.adapter import open_inventory
from resources.search.client import SearchClient
from resources.settings import (
    BrokenInstance,
    Instance,
    analysts_group,
    home,
    instances_folder,
    journal_url,
    load_instance,
    load_instances,
    logs_as_json,
    tables_location,
    without_password,
)
from resources.store.findings import folder_findings, store_findings
from resources.writeback.journals import journal_findings

STYLES: Mapping[State, str] = {"ok": "green", "warning": "yellow", "wrong": "bold red", "not tried": "dim"}


UNFOLDED = 100_000
"""Columns of a file or a pipe: no line is folded there."""


def check(path: Path, *, as_json: bool = False) -> int:
    """Try both services and print what was found; return 0, or 1 when something is wrong.

    As JSON it is one object: the instance, how much is wrong, how many warnings, and all findings.
    So too the folders that a run stores in, the database of ASSET_OWNERS_JOURNAL and the object store of
    ASSET_OWNERS_TABLES. Warnings leave it at 0: they do not stop a run either.

    Raises:
        ConfigurationError: the instance file is wrong, a secret is not set, a setting of the environment is
            wrong, or the tables are another instance's.
    """
    instance = load_instance(path)
    instance.require_secrets()
    analysts_group()  # these a run refuses at its start
    logs_as_json()
    dagster_folder(home())
    in_store = not isinstance(location := tables_location(), Path)
    if not in_store:  # of an object store it is asked once that is known to answer
        with suppress(NotADirectoryError):  # a home that is a file is a finding
            tables_of(instance)
    window = window_of(instance, today_of(instance))
    with SearchClient(instance) as search, open_inventory(instance) as inventory:
        console = Console(highlight=False, quiet=as_json)
        if not console.is_terminal:
            console.width = UNFOLDED
        sections = {
            f"This machine, for {instance.name}": _local_findings(instance),
            f"Search service {instance.url}": search.findings(window),
            f"Inventory service {instance.platform.url}": inventory.findings(),
        }
        if url := journal_url():
            sections[f"Journal of writes {without_password(url)}"] = journal_findings(url)
        if in_store:
            sections[f"Tables {location}"] = store_findings(location)
        found: list[dict[str, Any]] = []
        for heading, findings in sections.items():
            console.print(Text(heading, style="bold"))
            for finding in findings:
                console.print(_line(finding))
                found.append({"section": heading, **asdict(finding)})
        if in_store and found[-1]["state"] == "ok":
            tables_of(instance)
    wrong, warnings = (sum(one["state"] == state for one in found) for state in ("wrong", "warning"))
    if as_json:
        print(
            json.dumps({"instance": instance.name, "wrong": wrong, "warnings": warnings, "findings": found})
        )
    fixes = f"{wrong} to fix" if wrong else "Nothing to fix" if not warnings else "No error"
    console.print(f"{fixes}, {warnings or 'no'} warning{'s' * (warnings != 1)}.")
    return 1 if wrong else 0


def _local_findings(instance: Instance) -> Iterator[Finding]:
    """Tell whether what a run stores can be stored, and the instance is told from others."""
    dagster, location = dagster_folder(home()), tables_location()
    yield from folder_findings("ASSET_OWNERS_HOME", home(), "tables", f"tables/{instance.slug}", "dagster")
    if dagster != home() / "dagster":
        yield from folder_findings("DAGSTER_HOME", dagster)
    if isinstance(location, Path) and str(location) != str(home() / "tables"):
        yield from folder_findings("ASSET_OWNERS_TABLES", Path(location), instance.slug)
    files = load_instances(instances_folder(), lambda slug: slug == instance.slug)
    for other in files:
        # With a file of the same name beside it, Dagster serves neither; of two names, the second is refused.
        if isinstance(other, BrokenInstance) and instance.file and other.path.samefile(instance.file):
            yield Finding("wrong", "name", other.message.removeprefix(f"{other.path}: name: "))


def _line(finding: Finding) -> Table:
    line = Table.grid(padding=(0, 2))
    line.add_column(width=11)
    line.add_column(overflow="fold")
    # The words of a service may hold line breaks and what a terminal obeys; as Text they are no markup.
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in finding.text).split())
    line.add_row(
        Text(f"  {finding.state}", style=STYLES[finding.state]),
        Text.assemble((finding.what, "bold"), ": ", words),
    )
    return line
