"""What a run needs of any source of logons: ours, and the one of the recipe. Add another one to `SOURCES`."""

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import ValidationError, model_validator

from resources.errors import ConfigurationError
from resources.search.logons import SearchClient
from resources.settings import Instance
from tests.ownership.builders import host
from tests.pipelines.in_memory import LAST, Job, LogFile, Shelf
from tests.recipes import recipe
from tests.resources.fake_search import FakeSearch
from tests.resources.samples import instance, instance_content
from tests.resources.search.documents import DAY, event, found

NEXT = DAY + timedelta(days=1)


@contextmanager
def search(logons, _):
    with FakeSearch() as service:
        service.documents = [event(pc, user, f"{day}T12:00:00+00:00") for day, pc, user in logons]
        with SearchClient(instance(url=service.url, query="*")) as source:
            yield source


@contextmanager
def exports(logons, folder):
    for day in {day for day, *_ in logons}:
        rows = [names for at, *names in logons if at == day]
        schema = {"host": pl.String, "user": pl.String}
        pl.DataFrame(rows, schema, orient="row").write_parquet(folder / f"{day}.parquet")
    with recipe("Exports")(folder) as source:
        yield source


SOURCES = [search, exports]


@pytest.fixture(params=SOURCES, ids=lambda source: source.__name__)
def holding(request, tmp_path):
    """Opens the source with these logons, each a day, a host and a user."""
    return lambda logons: request.param(logons, tmp_path)


def test_each_day_is_given_in_order_with_its_counts(holding):
    began = datetime.now(UTC)
    logons = [(DAY, "PC", "ann")] * 2 + [(DAY, "pc", "ann"), (NEXT, "PC", "bob")]
    with holding(logons) as source:
        source.probe()
        given = list(source.logons([NEXT, DAY, NEXT + timedelta(days=1)]))
    assert [day.day for day in given] == [NEXT, DAY, NEXT + timedelta(days=1)]
    assert found(given[0]) == (1, 0, 0, [("PC", "bob", 1)])
    assert found(given[1]) == (3, 0, 0, [("PC", "ann", 2), ("pc", "ann", 1)])
    assert found(given[2]) == (0, 0, 0, [])
    kinds = {"document_hostname": pl.String, "document_username": pl.String, "events": pl.Int64}
    assert all(day.counts.schema == kinds for day in given)
    assert all(began <= day.fetched_at <= datetime.now(UTC) for day in given)


def test_events_without_a_name_are_counted_and_give_no_pair(holding):
    names = [("PC", None), (None, "ann"), ("PC", "-"), ("", "ann"), (None, None), ("PC", "ann")]
    with holding([(DAY, *pair) for pair in names]) as source:
        (day,) = source.logons([DAY])
    assert found(day) == (6, 3, 3, [("PC", "ann", 1)])


def test_a_folder_of_exports_that_is_missing_is_refused_and_has_no_days_without_logons(tmp_path):
    with recipe("Exports")(tmp_path / "unmounted") as source:
        for ask in (source.probe, lambda: list(source.logons([DAY]))):
            with pytest.raises(ConfigurationError, match="is not a folder"):
                ask()


def test_messages_can_name_what_says_where_names_are(holding):
    with holding([]) as source:
        assert source.user_setting != source.host_setting
        assert list(source.logons([])) == []


UNUSED = {"url": "https://unused.example", "username": "-", "password": {"env": "UNUSED"}, "index": "exports"}


class Exporting(Instance):
    """An instance whose logons come from exports: keys of the search service may then be missing."""

    exports: Path | None = None

    @model_validator(mode="before")
    @classmethod
    def _fill_unused(cls, content: dict[str, Any]) -> dict[str, Any]:
        return UNUSED | content if content.get("exports") else content


@pytest.mark.slow
@pytest.mark.usefixtures("no_catalogue", "no_report")
def test_a_run_reads_the_exports_of_an_instance_that_names_no_search_service(tmp_path):
    content = {key: value for key, value in instance_content().items() if key not in UNUSED}
    with pytest.raises(ValidationError, match="3 validation errors"):
        Exporting.model_validate(content)
    settings = Exporting.model_validate(content | {"exports": tmp_path})
    assert [*settings.sources] == ["exports"]
    with exports([(LAST, "pc-1", "ann")] * 3, tmp_path) as source:
        job = Job(tmp_path / "home", settings, source, Shelf(host("h1", "pc-1")))
        assert job().success
        assert job.inventory.written == {"h1": {"owner": "u1"}}
    with exports([(LAST, "pc-1", None)] * 3, tmp_path) as source:
        failed = Job(tmp_path / "another", settings, source)()
    assert not failed.success
    assert LogFile.user_setting not in str(failed.all_events)
    assert "column user: none of the 3 logon events" in str(failed.all_events)
