"""`asset-owners check`: try both services without writing, and show what works and what to fix.

What is tried is what a run relies on. Another source or inventory than ours is only asked whether it answers.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from assets_defs.run_request import today_of, window_of
from ownership.names import printable
from pipelines.cli.options import InstanceFile, Json, flag, own_tables, print_finding
from pipelines.dagster_home import dagster_folder
from resources.findings import Finding, check_folder, check_store
from resources.inventory import open_inventory
from resources.inventory.try_inventory import check_inventory, compare_names
from resources.ledger import ledger_findings
from resources.notify import check_addresses
from resources.search import open_source
from resources.search.source import Logs, check_logs
from resources.settings import (
    BrokenInstance,
    Instance,
    analysts_group,
    check_environment,
    command_line,
    home,
    instances_folder,
    journal_url,
    load_instance,
    load_instances,
    tables_location,
    without_password,
)


def check(
    path: InstanceFile,
    *,
    notify: Annotated[bool, flag("--notify", "Send a test notice to each address of `notify`.")] = False,
    as_json: Json = False,
) -> int:
    """Try both services, and what a run stores in, and print the findings; return 1 when something is wrong.

    Exit status: 1 if something is to fix, 2 for an invalid file; 0 with warnings, which stop no run either.

    Example: --instance NAME
    """
    instance = load_instance(path)
    instance.require_secrets()
    analysts_group()  # these a run refuses at its start
    check_environment()
    dagster_folder(home())
    location = tables_location()
    window = window_of(instance, today_of(instance))
    with Logs(instance, open_source) as logs, open_inventory(instance) as inventory:
        sections = {
            f"This machine, for {instance.name} ({instance.file})": _local_findings(instance),
            f"Search service {instance.source_place}": check_logs(
                logs, window, exclude_hosts=instance.rules.exclude_hosts
            ),
            f"Inventory service {instance.platform.place}": check_inventory(inventory),
        }
        if instance.notify:
            sections["Notices"] = check_addresses(instance, send=notify)
        if url := journal_url():
            sections[f"Ledger {without_password(url)}"] = ledger_findings(url)
        if not isinstance(location, Path):
            sections[f"Tables {location}"] = check_store(location)
        found: list[dict[str, Any]] = []
        names = compare_names(inventory, logs, window)
        sections["Names of both services"] = _unless_wrong(found, names)
        for heading, findings in sections.items():
            if not as_json:
                print(printable(heading))
            for finding in findings:
                shown = {"state": finding.state, "what": finding.what, "text": finding.text}
                found.append({"section": heading, **shown})
                if not as_json:
                    print_finding(finding)
    failures = [one for one in found if one["state"] == "wrong"]
    wrong, warnings = len(failures), sum(one["state"] == "warning" for one in found)
    if not wrong:
        own_tables(instance)  # fails where they are another instance's
    if as_json:
        counts = {"wrong": wrong, "warnings": warnings}
        print(json.dumps({"instance": instance.name, **counts, "findings": found}))
    else:
        fixes = f"{wrong} to fix" if wrong else "Nothing to fix" if not warnings else "No error"
        print(f"{fixes}, {warnings or 'no'} warning{'s' * (warnings != 1)}.")
        for one in failures:
            print_finding(Finding("wrong", one["what"], one["text"]))
        again = command_line(instance, *(["check"] if wrong else ["run", "--dry-run"]))
        print(f"{'After fixing it' if wrong else 'Next, see what a run would write'}:\n    {again}")
    return 1 if wrong else 0


def _unless_wrong(found: list[dict[str, Any]], names: Iterator[Finding]) -> Iterator[Finding]:
    """Compare names if nothing was found wrong: otherwise it would be found a second time."""
    if any(one["state"] == "wrong" for one in found):
        yield Finding("not tried", "names", "are compared once nothing above is wrong")
    else:
        yield from names


def _local_findings(instance: Instance) -> Iterator[Finding]:
    """Try whether files can be stored, and whether the instance's name is its own."""
    dagster, location = dagster_folder(home()), tables_location()
    yield from check_folder("ASSET_OWNERS_HOME", home(), "tables", f"tables/{instance.slug}", "dagster")
    if dagster != home() / "dagster":
        yield from check_folder("DAGSTER_HOME", dagster)
    if isinstance(location, Path) and str(location) != str(home() / "tables"):
        yield from check_folder("ASSET_OWNERS_TABLES", Path(location), instance.slug)
    for other in load_instances(instances_folder()):
        # With a file of the same name beside it, Dagster serves neither; of two names, the second is refused.
        if isinstance(other, BrokenInstance) and instance.file and other.file.samefile(instance.file):
            yield Finding("wrong", "name", other.message.removeprefix(f"{other.file}: name: "))
