"""Types of the values in an instance file: sections, texts, addresses, paths, places of secrets."""

import json
import keyword
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, LiteralString
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import requests
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError
from slugify import slugify

from resources.errors import ConfigurationError, why_unreadable
from resources.settings.query import correct_query, describe_faults, detect_language

if TYPE_CHECKING:
    from dagster import TimeWindowPartitionsDefinition

MAX_NAME = 200  # a folder's name has 255 bytes, and names of parts add to it

# DuckDB's own schemas, and the databases of a session: warehouse.conflicts would be ambiguous.
_OF_DUCKDB = {"main", "information_schema", "pg_catalog", "temp", "system", "warehouse", "scratch"}
# Names that Dagster refuses for a job; it would load no instance at all.
_OF_DAGSTER = {
    *keyword.kwlist,
    *("arg_dict", "bool", "conf", "config", "context", "dict", "float", "input", "input_arg_dict", "int"),
    *("meta", "output", "output_arg_dict", "str", "type"),
}
RESERVED_SLUGS = frozenset(_OF_DUCKDB | _OF_DAGSTER)


@lru_cache(maxsize=1024)  # all parts of an instance are named after it
def slug_of(name: str) -> str:
    """Return a text as letters, digits and underscores; "" if none are left."""
    return slugify(name, separator="_")


def is_slug(text: str) -> bool:
    """Return whether an instance may have this slug."""
    return 0 < len(text) <= MAX_NAME and text == slug_of(text) and text not in RESERVED_SLUGS


MAX_TEXT = 1000
MAX_FILE_BYTES = 256 * 1024


class Section(BaseModel):
    """A mapping in the instance file; refuses unknown keys, and is not changed once it is read."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True
    )


def read_text(path: Path) -> str:
    """Read a small regular file, in UTF-8 or as Windows writes it; OSError or ValueError otherwise."""
    if path.exists() and not path.is_file():  # to open a pipe would wait for its writer
        raise OSError("not a regular file")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise OSError(f"larger than {MAX_FILE_BYTES:,} bytes")
    return path.read_text(encoding=json.detect_encoding(path.read_bytes()))


def hidden_error(message: LiteralString) -> PydanticCustomError:
    """Return an error that does not show the value, because it may be a secret."""
    return PydanticCustomError("hidden", message)


def _service_url(value: str) -> str:
    """Refuse anything but a plain address, without showing it, because it may contain a password."""
    try:
        parts = urlsplit(value)
        plain = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        extra = parts.username or parts.password or parts.query or parts.fragment
        requests.Request("GET", value).prepare()
    except ValueError:
        plain, extra = False, None
    if extra or not plain:
        raise hidden_error("is not an address; write https://HOST:PORT/PATH, without user and password")
    return value.rstrip("/")


def _known_timezone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("is not a time zone; write a name such as UTC or Europe/Berlin") from error
    return value


def _cron_expression(value: str) -> str:
    # Here, because Dagster takes seconds to load and most instance files name no schedule.
    from dagster import DagsterInvalidDefinitionError, ScheduleDefinition  # noqa: PLC0415

    try:
        ScheduleDefinition(name="check", job_name="check", cron_schedule=value)
        time_between_runs(value, "UTC").get_next_partition_window(datetime.now(UTC), respect_bounds=False)
    except (DagsterInvalidDefinitionError, ValueError) as error:
        wrong = "is not a cron expression, or names a day that never comes"
        raise ValueError(f"{wrong}; write five fields such as 0 5 * * *, or null") from error
    return value


def time_between_runs(schedule: str, timezone: str) -> "TimeWindowPartitionsDefinition":
    """Return the times from each run of a schedule to the next, as Dagster reads cron expressions.

    Windows of a day that never comes raise ValueError when they are asked for.
    """
    from dagster import TimeWindowPartitionsDefinition  # noqa: PLC0415

    start = datetime(2000, 1, 1, tzinfo=ZoneInfo(timezone))
    return TimeWindowPartitionsDefinition(start=start, fmt="%F %R", cron_schedule=schedule, timezone=timezone)


def _query_text(value: object) -> object:
    """Return a query as text; query DSL may be a text that starts with `{`, or YAML."""
    if isinstance(value, Mapping):
        return json.dumps(value, default=str)  # YAML reads 2026-01-31 as a date
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"starts with {{ and is not valid JSON: {error}") from error
    elif isinstance(value, str) and (language := detect_language(value)):
        raise ValueError(
            f"is in {language}; write Lucene syntax (event.code:4624) or query DSL, texts in quotes"
        )
    elif isinstance(value, str) and (lucene := correct_query(value)):
        raise ValueError(
            f"{describe_faults(value)}, and means something else in Lucene syntax; write: {lucene} "
            "(texts to search for in quotes)"
        )
    return value


def _plain_domain(value: str) -> str:
    r"""Refuse a domain with an account or a wildcard, such as `CORP\` and `*.corp.example`."""
    before, backslash, _ = value.partition("\\")
    domain = (before if backslash else value.rpartition("@")[2]).strip(" .*?")
    if re.search(r"[*?@]", domain) or not domain:
        raise ValueError("is not a domain; name each, without wildcards, or none to take all")
    if domain != value.strip():
        raise ValueError(f"is not a domain; write {domain}")
    return value


def _id_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _beside_the_file(value: Path, info: ValidationInfo) -> Path:
    file: Path | None = (info.context or {}).get("file")
    return (file.parent if file else Path()) / value.expanduser()


FilePath = Annotated[Path, AfterValidator(_beside_the_file)]
"""A path that is relative to the folder of the file that names it."""
Url = Annotated[str, AfterValidator(_service_url)]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
Domain = Annotated[Text, AfterValidator(_plain_domain)]
IdText = Annotated[Text, BeforeValidator(_id_text, json_schema_input_type=Text | int)]
ApiPath = Annotated[str, Field(pattern="^/[^/]", max_length=MAX_TEXT)]
"""A path below the base URL; any other could lead to another service."""
Query = Annotated[
    str, Field(min_length=1), BeforeValidator(_query_text, json_schema_input_type=str | dict[str, Any])
]
Timezone = Annotated[str, AfterValidator(_known_timezone)]
Cron = Annotated[str, AfterValidator(_cron_expression)]
CookieName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
Weight = Annotated[int, Field(ge=1, le=1000, strict=True)]


class Secret(Section):
    """The place of a secret, `{env: VARIABLE}` or `{file: PATH}`, which is read when a client is opened."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["env"]}, {"required": ["file"]}]})
    env: str | None = Field(None, pattern="^[A-Z_][A-Z0-9_]*$")
    """environment variable that holds the secret; a final line break and a byte order mark are ignored"""
    file: FilePath | None = None
    """file that holds the secret; a final line break and a byte order mark are ignored"""

    @model_validator(mode="before")
    @classmethod
    def _refuse_clear_text(cls, value: object) -> object:
        known = (
            isinstance(value, Mapping) and set(value) in ({"env"}, {"file"}) and None not in value.values()
        )
        # A name in other characters may be the secret itself.
        if not known or not re.fullmatch("[A-Z_][A-Z0-9_]*", str(dict(value).get("env", "_"))):
            raise hidden_error("do not write the secret here; write {env: VARIABLE} or {file: PATH}")
        return value

    @property
    def place(self) -> str:
        """The place of the secret, for messages."""
        return f"the environment variable {self.env}" if self.env else f"the file {self.file}"

    @property
    def how_to_change(self) -> str:
        """The place of the secret, and when a change takes effect."""
        counts = (
            "a service has to be restarted after a change" if self.env else "read at the start of each run"
        )
        return f"{self.place}; {counts}"

    def resolve(self, setting: str) -> str:
        """Read the secret; `setting` is its key, for messages."""
        place = self.place
        try:
            value = os.environ.get(self.env, "") if self.env else read_text(self.file or Path())
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{setting}: {place} cannot be read: {why_unreadable(error)}") from error
        if not (secret := value.removeprefix("\ufeff").rstrip("\r\n")):
            raise ConfigurationError(f"{setting}: {place} is not set or empty; put the secret there")
        return secret
