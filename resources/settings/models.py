"""The keys of an instance file, a class for each section (rules 5.5 and 6), and the types of their values.

What a key is for stands beside it in `example.yaml`, from which the schema for editors has its texts.
"""

import hashlib
import json
import keyword
import os
import re
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cache, lru_cache
from pathlib import Path
from socket import AI_NUMERICHOST, getaddrinfo
from typing import TYPE_CHECKING, Annotated, Any, Literal, LiteralString, get_args
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import requests
import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError
from slugify import slugify

from ownership.matching import FieldNames
from ownership.rules import AccountKind, EvidenceMetric, HostKind, Rules
from resources.errors import ConfigurationError, call_each, why_unreadable
from resources.settings.query import correct_query, describe_faults, detect_language

if TYPE_CHECKING:
    from dagster import TimeWindowPartitionsDefinition


@dataclass(frozen=True)
class Preset:
    """One way of shipping: what its query counts and omits, and the settings for the instance file."""

    title: str
    counts: str
    omits: str
    notes: str
    settings: dict[str, str]
    rules: dict[str, Any] = field(default_factory=dict)

    def comment(self) -> str:
        """Return the description as comments for an instance file."""
        counted = f"Counted: {self.counts}", f"Not counted: {self.omits}"
        lines = [f"{self.title}.", *counted, *self.notes.splitlines()]
        return "\n".join(
            f"# {line}".rstrip()
            if line[:1] in {"", " "}
            else textwrap.indent(textwrap.fill(line, 108, break_on_hyphens=False), "# ")
            for line in lines
        )


@cache
def presets() -> dict[str, Preset]:
    """Return all presets by name, in the order of the file."""
    text = Path(__file__).with_name("presets.yaml").read_text(encoding="utf-8")
    return {name: Preset(**content) for name, content in yaml.safe_load(text).items()}


def recommended() -> dict[str, dict[str, Any]]:
    """Return the values that `init` recommends, by section and setting; not its names to exclude."""
    content = yaml.safe_load(Path(__file__).with_name("example.yaml").read_text(encoding="utf-8"))
    return {
        section: {name: value for name, value in content[section].items() if not isinstance(value, list)}
        for section in ("rules", "scan")
    }


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

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_switch(cls, value: object, info: ValidationInfo) -> object:
        """Refuse `on` for a number, which would count as 1: evidence would be kept for a day."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        kinds = {annotation, *get_args(annotation)}
        if isinstance(value, bool) and kinds & {int, float} and bool not in kinds:
            raise ValueError("is not a number: YAML reads yes, no, on and off as true or false")
        return value


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
    from dagster import TimeWindowPartitionsDefinition  # noqa: PLC0415  (as above)

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
Url = Annotated[str, StringConstraints(strip_whitespace=True), AfterValidator(_service_url)]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
Index = Annotated[
    Text, StringConstraints(strip_whitespace=True), AfterValidator(lambda text: re.sub(r"\s*,\s*", ",", text))
]
"""An index pattern without blanks, which to the service are part of a name: `a-*, -b` would count b."""
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
        when = "a service has to be restarted after a change" if self.env else "read at the start of each run"
        return f"{self.place}; {when}"

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


MAX_LOOKBACK_DAYS = 3660
DEFAULT_QUERY = "event.code:4624 AND event.outcome:success AND process.name:svchost.exe"


class ListCall(Section):
    """A listing endpoint: its path and the parameters that choose what it lists."""

    path: ApiPath
    params: dict[str, IdText] = Field({})


class ItemCall(Section):
    """An endpoint for one asset: its path and the name of the parameter that carries the asset's id."""

    path: ApiPath
    id_param: Text = "id"


class MfaRequired(Section):
    """How the log-in answer says that a code is needed: a dotted path and its value."""

    member: Text = "data.mfa_required"
    equals: bool | int | str = True


class EnrichFields(Section):
    """Host fields that receive the owner's values; the keys are the user asset's fields."""

    user_department: Text | None = "department"
    criticality: Text | None = "criticality"


class Contract(Section):
    """The parts of the inventory service that its specification does not show (rules 5.5)."""

    tenant_param: Text = "tenant_id"
    mfa_required: MfaRequired = MfaRequired()
    hosts: ListCall = ListCall(path="/api/v1/assets/list", params={"type": "host"})
    users: ListCall = ListCall(path="/api/v1/assets/list", params={"type": "user"})
    read: ItemCall | None = ItemCall(path="/api/v1/assets/get")
    update: ItemCall = ItemCall(path="/api/v1/assets/update")
    fields_in: str = Field("", max_length=MAX_TEXT)
    page_size: int = Field(1000, ge=1)
    enrich_fields: EnrichFields = EnrichFields()
    changed_by_writes: tuple[Text, ...] = ()


class Platform(Section):
    """The asset-inventory service."""

    url: Url
    email: Text
    password: Secret
    mfa_secret: Secret | None = None
    tenant_id: Annotated[IdText, StringConstraints(strip_whitespace=True)]
    ignore_ssl: bool = False
    ca_file: FilePath | None = None
    contract: Contract = Contract()

    @property
    def address(self) -> str:
        """The URL in one spelling, without a final dot of the host and a default port."""
        parts = urlsplit(requests.Request("GET", self.url).prepare().url or "")
        host = (parts.hostname or "").removesuffix(".")
        with suppress(OSError, ValueError):  # an IP address has many spellings; no name is resolved
            numeric = getaddrinfo(host, None, flags=AI_NUMERICHOST)[0][4][0]
            host = str(numeric).removeprefix("::ffff:")
        host = f"[{host}]" if ":" in host else host
        port = "" if parts.port in {None, {"http": 80, "https": 443}[parts.scheme]} else f":{parts.port}"
        return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"

    @property
    def place(self) -> str:
        """The address and the tenant, as people see them."""
        return f"{self.address}, tenant {self.tenant_id}"

    @property
    def key(self) -> str:
        """The address and the tenant, by which locks and pools tell inventories apart."""
        return f"{self.address} {self.tenant_id}"


class ScanSettings(Section):
    """The days whose logons count, the schedule, and enrichment."""

    lookback_days: int = Field(30, ge=1, le=MAX_LOOKBACK_DAYS)
    enrich: bool = True
    timezone: Timezone = "UTC"
    first_day: date = Field(date(2020, 1, 1), ge=date(1970, 1, 1), le=date(2999, 12, 31))
    late_days: int = Field(3, ge=0, le=60)
    schedule: Cron | None = "0 5 * * *"
    require_complete_window: bool = False


class RuleSettings(Section):
    """How owners are decided (rules 1, 2)."""

    share_threshold_percent: int = Field(Rules.share_threshold_percent, ge=50, le=99, strict=True)
    hostname_match: Literal["exact", "short"] = Rules.hostname_match
    exclude_users: tuple[Text, ...] = Rules.exclude_users
    exclude_hosts: tuple[Text, ...] = Rules.exclude_hosts
    min_events: int = Field(Rules.min_events, ge=1)
    min_active_days: int = Field(Rules.min_active_days, ge=1, le=3660)
    evidence_metric: EvidenceMetric = Rules.evidence_metric
    primary_devices: int | None = Field(Rules.primary_devices, ge=1, le=100)
    logon_type_weights: dict[IdText, Weight] = Field({})
    skip_account_kinds: tuple[AccountKind, ...] = Rules.skip_account_kinds
    skip_host_kinds: tuple[HostKind, ...] = Rules.skip_host_kinds
    domains: tuple[Domain, ...] = Rules.domains
    unite_accounts: bool = Rules.unite_accounts
    exclude_assets: dict[Text, tuple[Text, ...]] = Field({})
    exclude_user_assets: dict[Text, tuple[Text, ...]] = Field({})
    max_idle_days: int | None = Field(Rules.max_idle_days, ge=1, le=3660)
    min_stable_days: int | None = Field(Rules.min_stable_days, ge=1, le=365)
    min_confidence: int | None = Field(Rules.min_confidence, ge=50, le=99)

    def as_rules(self) -> Rules:
        """Return the values as `Rules`."""
        return Rules(**self.model_dump())


class WriteSettings(Section):
    """Limits on what a run may write."""

    dry_run: bool = False
    max_writes: int = Field(10_000, ge=0)
    max_write_percent: float | None = Field(None, gt=0, le=100)
    max_failed_writes: int = Field(20, ge=1)
    concurrency: int = Field(8, ge=1, le=64)
    plan_days: int = Field(7, ge=1, le=3_660)
    read_back_seconds: int = Field(10, ge=1, le=3_600)


class KeepSettings(Section):
    """How long the tables remember."""

    evidence_days: int = Field(400, ge=1, le=36_500)
    history_days: int = Field(400, ge=1, le=36_500)
    runs_days: int = Field(90, ge=1, le=36_500)


def _known_preset(name: str) -> str:
    if name not in presets():
        raise ValueError(f"is not a known way of shipping; write one of {', '.join(presets())}")
    return name


PresetName = Annotated[Text, AfterValidator(_known_preset)]


class OneQuery(Section):
    """The documents that one query counts, and the fields by which they are counted."""

    query: Query = DEFAULT_QUERY
    user_field: Text = "user.name"
    user_domain_field: Text | None = None
    hostname_field: Text = "agent.name"
    time_field: Text = "@timestamp"
    logon_type_field: Text | None = None


class Logs(OneQuery):
    """One query of several, with fields of its own; what is not given is as in an instance without `logs`."""

    model_config = ConfigDict(json_schema_extra={"type": ["object", "string"]})
    preset: PresetName | None = None
    """way of shipping that gives what is not given here; a text instead of a mapping is that name alone"""
    index: Index | None = None
    """index pattern to search; by default the file's `index`, then the preset's"""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, value: object) -> object:
        given = {"preset": value} if isinstance(value, str) else value
        if not isinstance(given, dict) or not isinstance(name := given.get("preset"), str):
            return given
        settings = presets()[name].settings if name in presets() else {}  # `preset` refuses unknown ones
        return {key: text for key, text in settings.items() if key != "index"} | given


class Instance(OneQuery):
    """One integration instance of type `search_asset_owner` (rules 6.1)."""

    name: str = Field(min_length=1, max_length=MAX_NAME)
    url: Url
    username: Text
    password: Secret
    cookies: dict[CookieName, Secret] = Field({})
    index: Index = "logs-*"
    logs: tuple[Logs, ...] = ()
    platform_hostname_field: Text = "search_agent_name"
    platform_user_field: Text = "asset_owner"
    platform_user_value_field: Text = "user_email"
    sensor: Text
    ignore_ssl: bool = False
    ca_file: FilePath | None = None
    platform: Platform
    scan: ScanSettings = ScanSettings()
    rules: RuleSettings = RuleSettings()
    writes: WriteSettings = WriteSettings()
    notify: tuple[Secret, ...] = ()
    keep: KeepSettings = KeepSettings()
    _file: Path | None = PrivateAttr(None)
    _changes: tuple[str, ...] = PrivateAttr(())

    def model_post_init(self, context: Any) -> None:
        """Store the file that this was read from, and the changes."""
        self._file = (context or {}).get("file")
        self._changes = tuple((context or {}).get("changes", ()))

    @property
    def changes(self) -> tuple[str, ...]:
        """Replaced settings of the file, each `SETTING=VALUE`."""
        return self._changes

    @property
    def file(self) -> Path | None:
        """The file that this was read from, if any."""
        return self._file

    @property
    def slug(self) -> str:
        """The name as an identifier: letters, digits and underscores."""
        return slug_of(self.name)

    @property
    def sources(self) -> dict[str, "Instance"]:
        """The instance for each of its logs by name, with the index, query and fields of this log.

        A log is named after its preset, or its index; further ones of the same name have a number.
        """
        named: dict[str, Instance] = {}
        for logs in self.logs:
            preset = presets()[logs.preset].settings["index"] if logs.preset else self.index
            index = logs.index or (self.index if "index" in self.model_fields_set else preset)
            fields = logs.model_dump(include={*OneQuery.model_fields})
            one = self.model_copy(update={"logs": (), "index": index, **fields})
            name = logs.preset or one.index
            same = sum(other.partition(" #")[0] == name for other in named)
            named[f"{name} #{same + 1}" if same else name] = one
        return named or {self.index: self}

    @property
    def source_place(self) -> str:
        """The address of the search service and the index of each log, as people see them."""
        return f"{self.url}, index {', '.join(one.index for one in self.sources.values())}"

    def require_secrets(self) -> None:
        """Fail if secrets are missing; the ConfigurationError names all of them, and the instance file."""
        file = f"{self.file}: " if self.file else ""
        secrets = {
            "password": self.password,
            "platform.password": self.platform.password,
            **{f"cookies.{name}": value for name, value in self.cookies.items()},
        }
        if self.platform.mfa_secret:
            secrets["platform.mfa_secret"] = self.platform.mfa_secret
        call_each(secrets, lambda setting: secrets[setting].resolve(f"{file}{setting}"), joint="\n")

    @property
    def decisive_user_field(self) -> str | None:
        """The user value field if the file names one, which then decides alone (rules 2.1)."""
        is_named = "platform_user_value_field" in self.model_fields_set
        return self.platform_user_value_field if is_named else None

    @property
    def field_names(self) -> FieldNames:
        """The inventory's names of the fields that decide."""
        return FieldNames(
            user_value=self.platform_user_value_field,
            decisive=self.decisive_user_field,
            owner=self.platform_user_field,
            hostname=self.platform_hostname_field,
        )

    @property
    def target(self) -> str:
        """The inventory that is written to: its address, the tenant, and a fingerprint (rules 7.8).

        The fingerprint changes whenever the same id could be another asset's, or the same request could set
        another field.
        """
        platform, contract = self.platform, self.platform.contract
        how = {"users", "mfa_required", "page_size", "changed_by_writes"}
        meaning = contract.model_dump(mode="json", exclude=how)
        fields = (self.platform_user_field, self.platform_hostname_field)
        text = json.dumps([platform.address, platform.tenant_id, meaning, fields], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return f"{platform.address} tenant {platform.tenant_id} {digest}"
