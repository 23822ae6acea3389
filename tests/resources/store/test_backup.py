"""What goes into a backup, and belongs together."""

import io
import tarfile
from datetime import date
from pathlib import Path

import polars as pl
import pytest
from upath import UPath

from ownership.tables import LogonCounts, LogonDays
from resources import locks
from resources.errors import AssetOwnersError, ConfigurationError
from resources.store.backup import back_up, restore
from resources.store.tables import Tables
from tests.ownership.builders import NOW, table

DAY = date(2026, 3, 1)


def stored(archive, name):
    file = archive.extractfile(f"tables/small/{name}/{DAY}.parquet")
    assert file
    return pl.read_parquet(io.BytesIO(file.read()))


def test_a_day_that_is_replaced_meanwhile_is_not_half_of_one_and_half_of_another(tmp_path, monkeypatch):
    tables = Tables(tmp_path / "home", "small")
    tables.prepare()

    def store(events):
        row = {"day": DAY, "matching": events, "counted": events, "lacking_user": 0, "lacking_host": 0}
        counts = {"day": DAY, "document_hostname": "pc", "document_username": "ann", "events": events}
        day = table(LogonDays, row | {"fetched_at": NOW, "settings_fingerprint": "x"})
        tables.write_days([(day, table(LogonCounts, counts))])

    refused = []

    def opened_and_replaced(path, *arguments, **options):
        file = whole(path, *arguments, **options)
        if path.parent.name == "logon_days" and path.stem == str(DAY):
            with pytest.raises(AssetOwnersError, match="The tables in ") as waited:
                store(2)
            refused.append(waited)
        return file

    store(1)
    whole = Path.open
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", opened_and_replaced)
        patch.setattr(locks, "TIMEOUT_SECONDS", 0)
        back_up(tmp_path / "home", tmp_path / "backup.tar")
    assert len(refused) == 1
    with tarfile.open(tmp_path / "backup.tar") as archive:
        row, counts = stored(archive, "logon_days"), stored(archive, "logon_counts")
    assert (row["counted"].item(), counts["events"].sum()) == (1, 1)


def test_whose_tables_they_are_goes_with_them(tmp_path):
    home = tmp_path / "home"
    mine = Tables(home, "small", name="Small")
    mine.claim()
    mine.prepare()
    back_up(home, tmp_path / "backup.tar")
    restored = tmp_path / "restored"
    restore(tmp_path / "backup.tar", restored, UPath(restored / "tables"))
    Tables(restored, "small", name="Small").claim()
    with pytest.raises(ConfigurationError, match="SMALL!"):
        Tables(restored, "small", name="SMALL!").claim()
