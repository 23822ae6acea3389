"""One simulated day's run, in a process of its own whose clock shows that day.

The operating system dates files truly, so `date_files` follows each run.
"""

import os
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from pipelines.cli.app import app
from tests.end_to_end.processes import settle_in
from tests.end_to_end.stand import in_memory
from tests.resources.clock import set_clock


def run_on_day(file: Path, report: Path, now: datetime, environment: dict[str, str], log: Connection) -> None:
    """Run the instance as its schedule does when it is `now`; what is printed goes to `report`."""
    settle_in(environment, str(report), log)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        set_clock(patch, now)
        patch.setattr("pipelines.cli.execution.dagster_instance", in_memory)
        app(["run", "--instance", str(file), "--json"])


def date_files(folder: Path, now: datetime, *, since: float = 0) -> None:
    """Date what was changed in a folder, by the true clock, since an instant as if it were `now`."""
    for path in [folder, *folder.rglob("*")]:
        if path.stat().st_mtime >= since:
            os.utime(path, (now.timestamp(), now.timestamp()))
