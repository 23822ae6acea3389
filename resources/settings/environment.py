"""Settings in the environment: the places of home, tables, ledger and instance files, and who may read."""

import atexit
import getpass
import grp
import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from upath import UPath

from resources.errors import ConfigurationError

_DATABASE = re.compile(
    r"(postgres(?:ql)?://)(?:([^:@/?#]*)(?::[^:@/?#]*)?(@))?([^@/?#]*(?:/[^@/?#]*)?)(?:\?[^@#]*)?"
)
_MISREAD = re.compile(r"[?\\]|%[0-9A-Fa-f]{2}")  # parts of a file's path that databases misread


def _value(variable: str) -> str:
    """Return the value of a variable, "" if not set, without quotes and line ends that env files keep."""
    return os.environ.get(variable, "").strip(" \r\n\"'")


def home() -> Path:
    """Return the folder of catalogue, ledgers and Dagster's own home: ASSET_OWNERS_HOME, default ./var."""
    return plain_folder("ASSET_OWNERS_HOME", Path(_value("ASSET_OWNERS_HOME") or "var").expanduser())


def plain_folder(setting: str, folder: Path) -> Path:
    """Return the absolute path of a folder for databases."""
    if found := _MISREAD.search(str(folder.absolute())):
        wrong = f"{setting}: {folder.absolute()} contains {found[0]!r}, which databases misread"
        raise ConfigurationError(f"{wrong}; name another folder")
    return folder.absolute()


def tables_location() -> UPath:
    """Return the folder or URL of the tables: ASSET_OWNERS_TABLES, default `tables` in the home."""
    named = _value("ASSET_OWNERS_TABLES") or home() / "tables"
    try:
        location = UPath(named)
        if isinstance(location, Path) or location.protocol in {"file", "local"}:
            return UPath(location.path).expanduser().absolute()
        # s3fs reads a large object in several requests, which may return two versions.
        serially: dict[str, Any] = {"max_concurrency": 1} if location.protocol in {"s3", "s3a"} else {}
        location = UPath(named, use_listings_cache=False, **serially)  # others write there as well
        location.fs.invalidate_cache()  # the first use loads the driver
        _end_store_thread()
    except (ImportError, ValueError, OSError) as error:  # some drivers connect immediately
        raise ConfigurationError(f"ASSET_OWNERS_TABLES: {named} cannot be used: {error}") from error
    return location


@cache
def _end_store_thread() -> None:
    """End the object store's thread at exit: it would keep objects alive that DuckDB 2.0 warns about."""
    from fsspec import asyn  # noqa: PLC0415  (it loads asyncio)

    def end() -> None:
        if asyn.iothread[0]:
            asyn.get_loop().call_soon_threadsafe(asyn.get_loop().stop)
            asyn.iothread[0].join()

    atexit.register(end)


def journal_url() -> str | None:
    """Return the ledger's database: ASSET_OWNERS_JOURNAL; None: files in the home."""
    url = _value("ASSET_OWNERS_JOURNAL") or None
    if url and not _DATABASE.fullmatch(url):
        raise ConfigurationError(
            "ASSET_OWNERS_JOURNAL is not the address of a PostgreSQL database: write "
            "postgresql://USER@HOST/DATABASE, and in a user or password percent-encode @ : / ? #, so @ as %40"
        )
    return url


def without_password(url: str) -> str:
    """Return the address of a database without password and parameters, for messages."""
    return _DATABASE.sub(r"\1\2\3\4", url)


def instances_folder() -> Path:
    """Return the folder of instance files: ASSET_OWNERS_INSTANCES, default `instances` under the home."""
    return Path(_value("ASSET_OWNERS_INSTANCES") or home() / "instances").expanduser().absolute()


def ui_url() -> str | None:
    """Return the address of Dagster's UI for links in notices: ASSET_OWNERS_UI_URL."""
    return _value("ASSET_OWNERS_UI_URL").rstrip("/") or None


def report_url(slug: str) -> str | None:
    """Return the address of an instance's report on our web server; None if none is configured."""
    known = ui_url() or "ASSET_OWNERS_UI_HOSTS" in os.environ
    return f"{ui_url() or ''}/reports/{slug}" if known else None


def analysts_group() -> int | None:
    """Return the id of the group that may read tables and catalogue: ASSET_OWNERS_ANALYSTS."""
    if not (name := _value("ASSET_OWNERS_ANALYSTS")):
        return None
    try:
        group = grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise ConfigurationError(f"ASSET_OWNERS_ANALYSTS: there is no group {name!r} here") from error
    if os.geteuid() != 0 and group not in os.getgroups():
        raise ConfigurationError(f"ASSET_OWNERS_ANALYSTS: this user is not a member of the group {name!r}")
    return group


def logs_as_json() -> bool:
    """Return whether each line of the log is a JSON object: ASSET_OWNERS_LOG."""
    return _one_of("ASSET_OWNERS_LOG", "text", "json") == "json"


def executor() -> str:
    """Return what executes the steps of a run: ASSET_OWNERS_EXECUTOR."""
    return _one_of("ASSET_OWNERS_EXECUTOR", "in_process", "multiprocess", "celery")


def stuck_seconds() -> int:
    """Return how long a run may make no progress: ASSET_OWNERS_STUCK_SECONDS, default half an hour."""
    value = _value("ASSET_OWNERS_STUCK_SECONDS") or "1800"
    if not re.fullmatch("[1-9][0-9]{0,6}", value):
        raise ConfigurationError(f"ASSET_OWNERS_STUCK_SECONDS: {value!r} is not a whole number of seconds")
    return int(value)


def check_environment() -> None:
    """Fail for settings that would otherwise fail later in a run."""
    logs_as_json()
    stuck_seconds()


def _one_of(variable: str, default: str, *others: str) -> str:
    value = _value(variable) or default
    if value not in (default, *others):
        raise ConfigurationError(f"{variable}: {value!r} is not one of {default}, {', '.join(others)}")
    return value


def system_user() -> str:
    """Return the user of this process, or who called it by `sudo`; the number of one without a name."""
    with suppress(KeyError, OSError):  # OpenShift runs containers as users of no name
        return os.environ.get("SUDO_USER") or getpass.getuser()
    return str(os.geteuid())
