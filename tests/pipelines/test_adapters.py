"""A run on another source of logons and another inventory: the two protocols name all that it needs."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta

import dagster as dg
import polars as pl
import pytest

from assets_defs.run import window_of
from pipelines.definitions import build_definitions
from pipelines.schedules import launch_tags, run_config
from resources.errors import AssetOwnersError
from resources.inventory.client import no_progress
from resources.search.source import DayOfLogons
from resources.store.tables import Tables
from resources.writeback.journals import open_journal
from tests.ownership.builders import PEOPLE, host, hosts
from tests.resources.samples import instance as sample

LAST = datetime.now(UTC).date()


class LogFile:
    """Logons as a program of the company's own might keep them."""

    def __init__(self, *logons: tuple[date, str, str]) -> None:
        self.logons_of = Counter(logons)

    def logons(self, days):
        for day in days:
            rows = [(pc, who, n) for (at, pc, who), n in self.logons_of.items() if at == day]
            schema = {"document_hostname": pl.String, "document_username": pl.String, "events": pl.Int64}
            counts = pl.DataFrame(rows, schema=schema, orient="row")
            yield DayOfLogons(day, datetime.now(UTC), sum(n for *_, n in rows), 0, 0, counts)

    def totals(self, first, last):
        return sum(n for (day, *_), n in self.logons_of.items() if first <= day <= last), 0, 0

    def undated(self):
        return 0

    def senders(self, day):  # noqa: ARG002
        return 0, pl.DataFrame(
            schema={
                "document_hostname": pl.String,
                "events": pl.Int64,
                "host_names": pl.List(pl.String),
            }
        )

    def findings(self, window):  # noqa: ARG002
        return iter(())


class Shelf:
    """An inventory in memory."""

    where, how_read, how_written = "The shelf", "nothing", "nothing"
    reads_single_hosts = True

    def __init__(self, assets):
        self.assets = {row["host_id"]: row for row in assets.to_dicts()}
        self.written = {}

    def hosts(self, on_progress=no_progress):  # noqa: ARG002
        return hosts(*self.assets.values()).with_columns(listed_at=datetime.now(UTC))

    def users(self, on_progress=no_progress):  # noqa: ARG002
        return PEOPLE.with_columns(listed_at=datetime.now(UTC))

    def host(self, host_id):
        return self.assets[host_id]

    def write(self, host_id, values, *, right_before):
        right_before()
        self.written[host_id] = dict(values)
        self.assets[host_id]["owner_ids"] = [values["owner"]] if values["owner"] else []

    def findings(self):
        return iter(())


@pytest.fixture
def run(tmp_path):
    """The job of an instance whose services are these."""
    instance = sample(scan={"lookback_days": 3, "timezone": "UTC"})

    def run(logons, inventory):
        given = {"search": logons, "inventory": inventory}
        overrides = {
            f"{instance.slug}__{part}": dg.ResourceDefinition.hardcoded_resource(
                lambda part=part: given[part]
            )
            for part in given
        }
        definitions = build_definitions([instance], tmp_path, resource_overrides=overrides)
        window = window_of(instance, LAST)
        with dg.DagsterInstance.ephemeral() as recorded:
            return definitions.resolve_job_def(instance.slug).execute_in_process(
                instance=recorded,
                tags=launch_tags(instance, window, dry_run=False),
                run_config=run_config(instance, refetch=False),
            )

    return run, Tables(tmp_path, instance.slug, name=instance.name)


def test_owners_come_from_another_source_and_go_into_another_inventory(run):
    yesterday = LAST - timedelta(days=1)
    logons = LogFile(*[(LAST, "pc-1", "ann")] * 2, (yesterday, "pc-1", "bob"), (LAST, "pc-2", "bob"))
    inventory = Shelf(hosts(host("h1", "pc-1"), host("h2", "pc-2", owners=("u1",))))
    run, tables = run
    assert run(logons, inventory).success
    assert inventory.written == {"h1": {"owner": "u1", "department": "Sales"}}
    decisions = tables.read("owner_decisions").collect()
    assert dict(decisions.select("host_id", "action").iter_rows()) == {"h1": "write", "h2": "conflict"}
    assert tables.writes().collect()["outcome"].to_list() == ["written"]


@pytest.mark.parametrize("made", [Tables.claim, lambda tables: open_journal(tables).__enter__()])
def test_a_run_of_a_program_older_than_what_it_finds_asks_nobody(run, newer_program, made):
    run, tables = run
    tables.prepare()
    with newer_program():
        made(tables)
    with pytest.raises(AssetOwnersError, match=r"asset-owners 99\.0 has been here"):
        run(None, None)
