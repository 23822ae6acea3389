"""Dagster's own home under ASSET_OWNERS_HOME: runs, event log, schedules."""

import logging
import math
import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from resources.errors import ConfigurationError
from resources.locks import hold_lock
from resources.settings import home, plain_folder
from resources.store.files import replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import dagster as dg

DAEMON_SILENCE_SECONDS = 60  # one that works says so each half minute
DAGSTER_YAML = Path(__file__).with_name("dagster.yaml").read_text(encoding="utf-8")


def dagster_folder(home: Path) -> Path:
    """Return where Dagster's home is, or would be; DAGSTER_HOME wins."""
    named = os.environ.get("DAGSTER_HOME")
    if not named:
        return (home / "dagster").absolute()
    folder = Path(os.path.expanduser(named))  # noqa: PTH111  (as Dagster does, which leaves an unknown ~user)
    if not folder.is_absolute():
        raise ConfigurationError(
            f"DAGSTER_HOME: {named!r} is not an absolute path, which Dagster's own programs need; set it to "
            f"{folder.absolute()}, or leave it out for {home.absolute() / 'dagster'}"
        )
    return plain_folder("DAGSTER_HOME", folder)


def dagster_home(home: Path) -> Path:
    """Return Dagster's home, created with our settings when it does not exist; DAGSTER_HOME wins."""
    folder = dagster_folder(home)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    settings = folder / "dagster.yaml"
    if not settings.exists():
        with replacing(settings) as file:
            file.write_text(DAGSTER_YAML, encoding="utf-8")
    return folder


def warn_of_other_home(instance_tag: str) -> None:
    """Warn where Dagster's home has no settings of ours, which limit the runs that have this tag."""
    named = os.environ.get("DAGSTER_HOME")
    settings = Path(named, "dagster.yaml") if named else None
    if settings and settings.is_file() and instance_tag in settings.read_text(encoding="utf-8"):
        return
    logging.getLogger("dagster.code_server").warning(  # in the form of its other lines
        f"DAGSTER_HOME is {named or 'not set'}: runs of one instance may work at the same time there, and "
        f"runs that died are not noticed. Set it to {home() / 'dagster'}, which `asset-owners prepare` makes"
    )


def silent_seconds(dagster: "dg.DagsterInstance") -> dict[str, float]:
    """Return how long ago each of Dagster's daemons last said that it works; infinite where it never did."""
    last = {name: daemon.last_heartbeat for name, daemon in dagster.get_daemon_statuses().items()}
    # One from the future comes from a clock that was ahead: waiting for it could take days.
    return {name: abs(time.time() - one.timestamp) if one else math.inf for name, one in last.items()}


def has_daemon(dagster: "dg.DagsterInstance") -> bool:
    """Return whether a daemon, such as that of `dg dev`, may work for this home: it said so lately.

    Nobody knows while Dagster's database is away, and two daemons would start runs twice.
    """
    with suppress(Exception):  # each database has errors of its own
        return min(silent_seconds(dagster).values(), default=math.inf) < DAEMON_SILENCE_SECONDS
    return True


def forget_daemon(dagster: "dg.DagsterInstance", say: "Callable[[str], None]") -> None:
    """Forget that our daemon worked, now that it has ended: the next `serve` would wait a minute for it."""
    try:
        dagster.wipe_daemon_heartbeats()
    except Exception as error:  # noqa: BLE001  (as above)
        why = str(error).partition("\n")[0]
        say(f"That the daemon ended could not be stored, so the next start may wait a minute for it: {why}")


@contextmanager
def dagster_instance(home: Path) -> "Generator[dg.DagsterInstance]":
    """Open the Dagster instance that the UI under the same home shows."""
    import dagster as dg  # noqa: PLC0415  (takes a second, and other commands need no more than the folder)

    folder = dagster_home(home)
    try:
        # Dagster makes its files when it starts; of two that start at the same time, one fails.
        with hold_lock(folder / ".opening.lock", f"Dagster's home {folder}"):
            opened = dg.DagsterInstance.from_config(str(folder))
    except (yaml.YAMLError, dg.DagsterInvalidConfigError) as error:
        raise ConfigurationError(
            f"{folder / 'dagster.yaml'}: Dagster refuses these settings; correct them, or delete the file to "
            f"have it written again:\n{error}"
        ) from error
    with opened as instance:
        yield instance
