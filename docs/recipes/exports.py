"""A source of logons: a folder of exports, a Parquet file a day with the columns `host` and `user`."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import polars as pl

from ownership.names import is_no_name
from resources.errors import ConfigurationError
from resources.search.source import DayOfLogons, EvidenceSource


class Exports(EvidenceSource):
    """Logons that another program exports: DAY.parquet, one row a logon."""

    user_setting, host_setting = "column user", "column host"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def probe(self) -> None:
        if not self._folder.is_dir():
            raise ConfigurationError(f"{self._folder} is not a folder; name that of the exports")

    def logons(self, days: Sequence[date]) -> Iterator[DayOfLogons]:
        self.probe()
        for day in days:
            fetched_at, path = datetime.now(UTC), self._folder / f"{day}.parquet"
            nothing = pl.DataFrame(schema={"host": pl.String, "user": pl.String})
            rows = pl.read_parquet(path) if path.exists() else nothing
            rows = rows.with_columns(pl.when(~is_no_name(pl.all())).then(pl.all()))
            counts = rows.drop_nulls().group_by(document_hostname="host", document_username="user")
            events = counts.agg(events=pl.len().cast(pl.Int64))
            lacking = rows["user"].null_count(), rows["host"].null_count()
            yield DayOfLogons(day, fetched_at, rows.height, *lacking, counts=events)
