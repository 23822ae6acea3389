"""One simulated day's run, in a process of its own whose clock shows that day.

The program takes the time of day from `datetime.now`, and nothing else of it is set: whatever measures how
long something takes (time limits, Retry-After, the age of a look or a session) goes on by the true clock. The
operating system dates files truly, so `date_files` follows each run.
"""

import os
from datetime import datetime, tzinfo
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest

import assets_defs
import pipelines.cli
import reports
import resources
from pipelines.cli.app import app
from tests.end_to_end.processes import settle_in
from tests.end_to_end.stand import in_memory

# A module that is imported later would have the true clock.
PROGRAM = [
    import_module(found.name)
    for package in (assets_defs, pipelines.cli, reports, resources)
    for found in walk_packages(package.__path__, f"{package.__name__}.")
]


def run_on_day(file: Path, report: Path, now: datetime, environment: dict[str, str], log: Connection) -> None:
    """Run the instance as its schedule does when it is `now`; what is printed goes to `report`."""
    settle_in(environment, str(report), log)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        set_clock(patch, now)
        patch.setattr("pipelines.cli.run.dagster_instance", in_memory)
        app(["run", "--instance", str(file), "--json"])


def set_clock(patch: pytest.MonkeyPatch, now: datetime) -> None:
    """Let it be `now` for the program; its clock goes on from there."""
    ahead = now - datetime.now(now.tzinfo)

    class AnyTime(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, datetime)

    class Simulated(datetime, metaclass=AnyTime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + ahead

    for module in PROGRAM:
        if getattr(module, "datetime", None) is datetime:
            patch.setattr(module, "datetime", Simulated)


def date_files(folder: Path, now: datetime, *, since: float = 0) -> None:
    """Date what was changed in a folder, by the true clock, since an instant as if it were `now`."""
    for path in [folder, *folder.rglob("*")]:
        if path.stat().st_mtime >= since:
            os.utime(path, (now.timestamp(), now.timestamp()))
