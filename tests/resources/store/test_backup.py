import io
import tarfile
from pathlib import Path

import polars as pl
import pytest

from resources import locks
from resources.errors import AssetOwnersError
from resources.store.backup import back_up
from tests.resources.store.test_tables import DAY, logons


def stored(archive, name):
    file = archive.extractfile(f"tables/corp/{name}/{DAY}.parquet")
    return pl.read_parquet(io.BytesIO(file.read()))


def test_a_day_that_is_replaced_meanwhile_is_not_half_of_one_and_half_of_another(
    tables, home, tmp_path, monkeypatch
):
    refused = []

    def opened_and_replaced(path, *arguments, **options):
        file = whole(path, *arguments, **options)
        if path.parent.name == "logon_days" and path.stem == str(DAY):
            with pytest.raises(AssetOwnersError, match="The tables in ") as waited:
                tables.write_days([logons(events=2, pairs=1)])
            refused.append(waited)
        return file

    tables.write_days([logons(events=1, pairs=1)])
    whole = Path.open
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", opened_and_replaced)
        patch.setattr(locks, "TIMEOUT_SECONDS", 0)
        back_up(home, tmp_path / "backup.tar")
    assert len(refused) == 1
    with tarfile.open(tmp_path / "backup.tar") as archive:
        row, counts = stored(archive, "logon_days"), stored(archive, "logon_counts")
    assert (row["counted"].item(), counts["events"].sum()) == (1, 1)
