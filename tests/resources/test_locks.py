import os

import pytest

from resources import locks
from resources.errors import AssetOwnersError
from resources.locks import locked


def test_who_waits_is_told_for_whom_and_gives_up(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(locks, "WARN_SECONDS", 0.05)
    holder = f"held by process {os.getpid()} .*, run run-1, since 20"
    with (
        locked(tmp_path / "lock", "The table", run_id="run-1"),
        pytest.raises(AssetOwnersError, match=f"The table: {holder}"),
        locked(tmp_path / "lock", "The table", timeout_seconds=0.2),
    ):
        pytest.fail("two at once")
    assert len(caplog.messages) == 1
    assert f"waiting for process {os.getpid()} " in caplog.text
