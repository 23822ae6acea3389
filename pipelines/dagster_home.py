"""Dagster's own home under ASSET_OWNERS_HOME: runs, event log, schedules."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import yaml

from resources.errors import ConfigurationError
from resources.locks import locked
from resources.settings import plain_folder
from resources.store.files import replacing

# No telemetry, and no sign-up dialog over the first page. What the daemon starts waits for its turn (so many
# runs at once, and one of each instance), and for a code server that is away. A run that does not
# start within minutes counts as failed, and so does one that died with its code server or, at last, unseen:
# others would wait for it for ever. A run is executed again where its tags say so, which is after a service
# did not answer.
DAGSTER_YAML = """\
telemetry:
  enabled: false
nux:
  enabled: false
python_logs:
  managed_python_loggers: [resources]
concurrency:
  runs:
    max_concurrent_runs: 4
    tag_concurrency_limits:
      - key: asset_owners/instance
        value: {applyLimitPerUniqueValue: true}
        limit: 1
run_queue:
  max_user_code_failure_retries: 10
  user_code_failure_retry_delay: 60
run_launcher:
  module: pipelines.launcher
  class: WatchfulRunLauncher
run_monitoring:
  enabled: true
  poll_interval_seconds: 60
  start_timeout_seconds: 180
  cancel_timeout_seconds: 60
  max_runtime_seconds: 43200
run_retries:
  enabled: true
  max_retries: 0
retention:
  schedule:
    purge_after_days: {skipped: 7, failure: 30, success: 90}
  sensor:
    purge_after_days: {skipped: 7, failure: 30, success: 90}
"""


def dagster_folder(home: Path) -> Path:
    """Return where Dagster's home is, or would be; DAGSTER_HOME wins."""
    named = os.environ.get("DAGSTER_HOME")
    if not named:
        return (home / "dagster").absolute()
    folder = Path(os.path.expanduser(named))  # noqa: PTH111  (as Dagster does, which leaves an unknown ~user)
    if not folder.is_absolute():
        raise ConfigurationError(
            f"DAGSTER_HOME: {named!r} is no absolute path, and Dagster's own programs take no other; set it "
            f"to {folder.absolute()}, or leave it out: then it is {home.absolute() / 'dagster'}"
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


@contextmanager
def dagster_instance(home: Path) -> Generator[dg.DagsterInstance]:
    """Open the Dagster instance that the UI under the same home shows."""
    folder = dagster_home(home)
    try:
        # Dagster makes its files at its start: of two, one fails.
        with locked(folder / ".opening.lock", f"Dagster's home {folder}"):
            opened = dg.DagsterInstance.from_config(str(folder))
    except (yaml.YAMLError, dg.DagsterInvalidConfigError) as error:
        raise ConfigurationError(
            f"{folder / 'dagster.yaml'}: Dagster does not take these settings; correct them, or delete the "
            f"file to have it written again:\n{error}"
        ) from error
    with opened as instance:
        yield instance
