"""The instance file: one YAML file an instance, checked as a whole, with messages for its author.

Names and defaults are those of readings §5.5 and §6. Secrets are only named here (`Secret`); they are
resolved when a client is opened and never kept in a settings object.
"""

import difflib
import grp
import hashlib
import json
import keyword
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, LiteralString, TypeVar, get_args
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError
from slugify import slugify
from upath import UPath

from ownership.decisions import Rules
from resources.errors import ConfigurationError

DEFAULT_QUERY = "event.code:4624 AND event.outcome:success AND process.name:svchost.exe"

# Bounds on what is read, far beyond any use: a file may be wrong, and must not keep the others waiting.
MAX_CHARACTERS = 256 * 1024  # of a file
MAX_NODES = 20_000  # keys and values in it, what aliases stand for counted each time
MAX_DEPTH = 100  # of values in values
MAX_NUMBER_DIGITS = 100
MAX_NAME = 200  # a folder's name has 255 bytes, and what is made of it needs some
MAX_COMPLAINTS = 20


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


SectionT = TypeVar("SectionT", bound=_Section)


def _text(path: Path) -> str:
    """Read a file of which nobody knows what it is: only a regular one, which ends, and only so much of it.

    Raises:
        OSError: it cannot be read, is something else, or holds more.
        ValueError: it is no UTF-8, or the path is none.
    """
    if not stat.S_ISREG(path.stat().st_mode):  # to open a pipe would wait for whoever writes into it
        raise OSError("it is no regular file; name a file on a disk")
    with path.open(encoding="utf-8") as file:
        text = file.read(MAX_CHARACTERS + 1)
    if len(text) > MAX_CHARACTERS:
        raise OSError(f"it holds more than {MAX_CHARACTERS:,} characters, which no such file needs")
    return text


def _beside_the_file(value: Path, info: ValidationInfo) -> Path:
    folder = (info.context or {}).get("folder", Path())
    return folder / value.expanduser()


FilePath = Annotated[Path, AfterValidator(_beside_the_file)]


def _secret_error(message: LiteralString) -> PydanticCustomError:
    """An error about a value that is not to be shown."""
    return PydanticCustomError("secret", message)


class Secret(_Section):
    """Where a secret lies: `{env: VARIABLE}` or `{file: PATH}`."""

    env: str | None = Field(
        None,
        min_length=1,
        description="environment variable that holds the secret; a final line break is ignored",
    )
    file: FilePath | None = Field(
        None, description="file that holds the secret; a final line break is ignored"
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_clear_text(cls, value: object) -> object:
        if not isinstance(value, Mapping) or set(value) not in ({"env"}, {"file"}) or None in value.values():
            raise _secret_error(
                "is not a secret's place; write {env: VARIABLE} or {file: PATH}, never the secret"
            )
        return value

    def resolve(self, setting: str) -> str:
        """Read the secret.

        Raises:
            ConfigurationError: the variable is not set, or the file cannot be read or is empty.
        """
        if self.env is not None:
            value = os.environ.get(self.env, "").rstrip("\r\n")
            if not value:
                raise ConfigurationError(
                    f"{setting}: the environment variable {self.env} is not set; export it"
                )
            return value
        assert self.file is not None  # noqa: S101  (the validator allows nothing else)
        try:
            value = _text(self.file).rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{setting}: the file {self.file} cannot be read: {error}") from error
        if not value:
            raise ConfigurationError(f"{setting}: the file {self.file} is empty; write the secret into it")
        return value


def _service_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:
        raise ValueError("is not an address; write https://HOST:PORT")
    if parts.username or parts.password:
        raise _secret_error("holds a user or password; write them under username and password")
    if parts.query or parts.fragment:
        raise ValueError("has a query or fragment; write https://HOST:PORT and, if need be, a path")
    return value.rstrip("/")


def _known_timezone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("is no time zone; write a name such as UTC or Europe/Berlin") from error
    return value


def _cron_expression(value: str) -> str:
    # Here, because Dagster takes seconds to load and most instance files name no schedule.
    from dagster import DagsterInvalidDefinitionError, ScheduleDefinition  # noqa: PLC0415

    try:
        ScheduleDefinition(name="check", job_name="check", cron_schedule=value)
    except DagsterInvalidDefinitionError as error:
        raise ValueError("is no cron expression; write five fields such as 0 5 * * *, or null") from error
    return value


def _query_text(value: object) -> object:
    """Query DSL may be written as text that starts with `{` or as YAML; it is kept as text."""
    if isinstance(value, Mapping):
        return json.dumps(value, default=str)  # YAML reads 2026-01-31 as a date
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            content = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"starts with {{ and is no JSON: {error}") from error
        if _is_deeper(content, MAX_DEPTH):
            raise ValueError(f"is nested more than {MAX_DEPTH} levels deep")
    return value


def _is_deeper(value: object, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_is_deeper(each, levels - 1) for each in inner)


def _cookie_names(value: object) -> object:
    """Refuse names that are no tokens (RFC 6265) without showing them: one may hold a value by mistake."""
    names = [*value] if isinstance(value, Mapping) else []
    for number, name in enumerate(names, start=1):
        if not isinstance(name, str) or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise PydanticCustomError(
                "secret",
                "the name of cookie {number} may have letters, digits and !#$%&'*+-.^_`|~ only; write beside "
                "it where its value lies",
                {"number": number},
            )
    return value


def _id_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Url = Annotated[str, AfterValidator(_service_url)]
FieldName = Annotated[str, Field(min_length=1)]
Text = Annotated[str, Field(min_length=1)]


class ListCall(_Section):
    """A listing endpoint: its path and the parameters that choose what it lists."""

    path: Text
    params: dict[str, Annotated[str, BeforeValidator(_id_text)]] = {}


class ItemCall(_Section):
    """An endpoint for one asset: its path and the name of the parameter that carries the asset's id."""

    path: Text
    id_param: Text = "id"


class MfaRequired(_Section):
    """What in the log-in answer says that a code is needed: a dotted path and its value."""

    member: Text = "data.mfa_required"
    equals: bool | int | str = True


class EnrichFields(_Section):
    """Host fields that receive the owner's values; the keys are the user asset's fields."""

    user_department: FieldName | None = "department"
    criticality: FieldName | None = "criticality"


class Contract(_Section):
    """What the specification of the inventory service does not show (readings §5.5)."""

    tenant_param: Text = Field("tenant_id", description="parameter that carries the tenant id")
    mfa_required: MfaRequired = Field(
        MfaRequired(), description="how the log-in answer says that a code is needed"
    )
    hosts: ListCall = Field(
        ListCall(path="/api/v1/assets/list", params={"type": "host"}), description="lists host assets"
    )
    users: ListCall = Field(
        ListCall(path="/api/v1/assets/list", params={"type": "user"}), description="lists user assets"
    )
    read: ItemCall | None = Field(
        ItemCall(path="/api/v1/assets/get"), description="reads one asset; null where the service cannot"
    )
    update: ItemCall = Field(
        ItemCall(path="/api/v1/assets/update"), description="sets fields of one asset; they go beside its id"
    )
    fields_in: str = Field("", description="dotted path inside an item to its fields; empty = beside its id")
    page_size: int = Field(1000, ge=1, description="items asked for in a page; the service may give fewer")
    enrich_fields: EnrichFields = Field(EnrichFields(), description="user asset's field: host asset's field")


def _contract_file(value: object, info: ValidationInfo) -> object:
    """Read the contract from the file whose path is given in its place: instances may share one."""
    return _read(_beside_the_file(Path(value), info), Contract) if isinstance(value, str) else value


class Platform(_Section):
    """The asset-inventory service."""

    url: Url = Field(description="base URL, without /api/v1")
    email: Text = Field(description="account that signs in")
    password: Secret = Field(description="its password")
    mfa_secret: Secret | None = Field(None, description="its TOTP secret (base32), where MFA applies")
    tenant_id: Annotated[Text, BeforeValidator(_id_text)] = Field(description="tenant that holds the assets")
    ignore_ssl: bool = Field(False, description="skip certificate checks; prefer ca_file")
    ca_file: FilePath | None = Field(None, description="PEM file with the certificate authority to trust")
    contract: Annotated[Contract, BeforeValidator(_contract_file)] = Field(
        Contract(),
        description="what the specification does not show, or the path of a YAML file with it",
    )

    @property
    def address(self) -> str:
        """The URL in one spelling: scheme and host in lower case, without the scheme's own port."""
        parts = urlsplit(self.url)
        port = {"http": 80, "https": 443}[parts.scheme]
        host = parts.netloc.lower().removesuffix(f":{port}")
        return f"{parts.scheme}://{host}{parts.path}"


class ScanSettings(_Section):
    """Which days are looked at, when, and what is done with the owners found."""

    lookback_days: int = Field(
        30, ge=1, le=3660, description="look-back window in calendar days, the running one included"
    )
    enrich: bool = Field(True, description="enrich host information by asset owner")
    timezone: Annotated[str, AfterValidator(_known_timezone)] = Field(
        "UTC", description="time zone of the days"
    )
    first_day: date = Field(date(2020, 1, 1), description="earliest day that is ever looked at")
    late_days: int = Field(
        2, ge=0, le=60, description="days after its end during which a day may still receive events"
    )
    schedule: Annotated[str, AfterValidator(_cron_expression)] | None = Field(
        "0 5 * * *", description="cron expression in `timezone`; null = no schedule"
    )
    require_complete_window: bool = Field(
        False, description="write nothing when days of the window lack events"
    )


class RuleSettings(_Section):
    """How owners are decided (readings §1)."""

    share_threshold_percent: int = Field(
        60, ge=50, le=99, strict=True, description="the leader of several users needs more than this share"
    )
    hostname_match: Literal["exact", "short"] = Field(
        "exact", description="compare whole names, or their first label"
    )
    exclude_users: tuple[Text, ...] = Field(
        (), description="user names that are not people; * and ? are wildcards"
    )
    exclude_hosts: tuple[Text, ...] = Field(
        (), description="host names that get no owner; * and ? are wildcards"
    )
    min_events: int = Field(1, ge=1, description="fewest logon events of a host that count as evidence")

    def as_rules(self) -> Rules:
        """The same values as the rules take them."""
        return Rules(**self.model_dump())


class WriteSettings(_Section):
    """Limits on what a run may write."""

    dry_run: bool = Field(False, description="plan only; write nothing")
    max_writes: int = Field(10_000, ge=0, description="more planned writes than this stop the run")
    max_write_percent: float | None = Field(
        None,
        gt=0,
        le=100,
        description="planned writes above this share of the inventory's hosts stop the run",
    )
    max_failed_writes: int = Field(20, ge=1, description="failed writes in a row that end the writing")
    concurrency: int = Field(8, ge=1, le=64, description="requests to the inventory service at a time")
    plan_days: int = Field(7, ge=1, description="a stored plan older than that is not applied")


class KeepSettings(_Section):
    """How long the tables remember."""

    evidence_days: int = Field(400, ge=1, description="days of logon counts kept")
    history_days: int = Field(
        400, ge=1, description="days for which past decisions, plans and writes are kept"
    )


class Instance(_Section):
    """One integration instance of type `search_asset_owner` (specification §2)."""

    name: Text = Field(
        max_length=MAX_NAME, description="label; its slug names job, schedule, schema and folder"
    )
    url: Url = Field(description="base URL of the search service")
    username: Text = Field(description="search-service user")
    password: Secret = Field(description="password of that user")
    cookies: Annotated[dict[str, Secret], BeforeValidator(_cookie_names)] = Field(
        {}, description="extra cookies added to search requests, name: value"
    )
    index: Text = Field("logs-*", description="index pattern to search")
    query: Annotated[Text, BeforeValidator(_query_text)] = Field(
        DEFAULT_QUERY,
        description="logon events: Lucene query-string syntax, or query DSL when it starts with {",
    )
    user_field: FieldName = Field("user.name", description="document field holding the username")
    hostname_field: FieldName = Field("agent.name", description="document field holding the hostname")
    time_field: FieldName = Field("@timestamp", description="document field holding the time of the event")
    platform_hostname_field: FieldName = Field(
        "search_agent_name", description="asset field matched against the document hostname"
    )
    platform_user_field: FieldName = Field(
        "asset_owner", description="asset field written with the resolved owner"
    )
    platform_user_value_field: FieldName = Field(
        "user_email", description="user-asset field used to match the username"
    )
    sensor: Text = Field(description="sensor that runs the integration; a tag on its runs")
    ignore_ssl: bool = Field(False, description="skip certificate checks; prefer ca_file")
    ca_file: FilePath | None = Field(None, description="PEM file with the certificate authority to trust")
    platform: Platform = Field(description="the asset-inventory service")
    scan: ScanSettings = Field(ScanSettings(), description="days, schedule, enrichment")
    rules: RuleSettings = Field(RuleSettings(), description="how owners are decided")
    writes: WriteSettings = Field(WriteSettings(), description="limits on what a run may write")
    keep: KeepSettings = Field(KeepSettings(), description="how long the tables remember")

    @property
    def slug(self) -> str:
        """The name as an identifier: letters, digits and underscores."""
        return slug_of(self.name)

    @property
    def target(self) -> str:
        """The inventory that is written to: its address, the tenant, and a fingerprint (readings §7).

        The fingerprint changes whenever the same id could be another asset's, or the same request could set
        another field: with the address, the tenant, and what contract and fields say about host assets.
        """
        platform, contract = self.platform, self.platform.contract
        meaning = contract.model_dump(mode="json", exclude={"users", "mfa_required", "page_size"})
        fields = (self.platform_user_field, self.platform_hostname_field)
        text = json.dumps([platform.address, platform.tenant_id, meaning, fields], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return f"{platform.address} tenant {platform.tenant_id} {digest}"

    @property
    def extraction_fingerprint(self) -> str:
        """Changes exactly when the same day could be counted differently (readings §4.3)."""
        settings = (self.url, self.index, self.query, self.user_field, self.hostname_field, self.time_field)
        return hashlib.sha256(json.dumps([*settings, self.scan.timezone]).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class BrokenInstance:
    """An instance file that cannot be used, with the message for its author.

    `slug` is made from the file's name, for the instance's own may be what is wrong, and is nobody else's.
    """

    path: Path
    message: str
    slug: str


def slug_of(name: str) -> str:
    """Turn free text into letters, digits and underscores; empty when nothing is left."""
    return slugify(name, separator="_")


def is_slug(text: str) -> bool:
    """Tell whether an instance may have this slug."""
    return 0 < len(text) <= MAX_NAME and text == slug_of(text) and text not in _RESERVED_SLUGS


def named(instance: Instance | BrokenInstance, part: str) -> str:
    """Name a part of an instance where Dagster keeps the parts of all instances side by side.

    No slug holds two underscores in a row, so no part of one instance is called like another instance, or
    like a part of it.
    """
    return f"{instance.slug}__{part}"


def home() -> Path:
    """Return the folder of catalogue, journals and Dagster's own home: ASSET_OWNERS_HOME, default ./var."""
    return Path(os.environ.get("ASSET_OWNERS_HOME") or "var").absolute()


def tables_location() -> UPath:
    """Return where the tables lie: ASSET_OWNERS_TABLES, a folder or a URL; default `tables` under the home.

    Raises:
        ConfigurationError: nothing that is installed can reach the URL.
    """
    named = os.environ.get("ASSET_OWNERS_TABLES") or home() / "tables"
    try:
        location = UPath(named)
        if isinstance(location, Path):
            return location.absolute()
        location = UPath(named, use_listings_cache=False)  # others write there as well
        location.fs.invalidate_cache()  # the first use loads the driver
    except (ImportError, ValueError) as error:
        raise ConfigurationError(f"ASSET_OWNERS_TABLES: {named} cannot be used: {error}") from error
    return location


def instances_folder() -> Path:
    """Return the folder of instance files: ASSET_OWNERS_INSTANCES, default `instances` under the home."""
    return Path(os.environ.get("ASSET_OWNERS_INSTANCES") or home() / "instances").absolute()


def analysts_group() -> int | None:
    """Return the id of the group that may read tables and catalogue: ASSET_OWNERS_ANALYSTS, default none.

    Raises:
        ConfigurationError: there is no such group, or this user may not hand files to it.
    """
    name = os.environ.get("ASSET_OWNERS_ANALYSTS")
    if not name:
        return None
    try:
        group = grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise ConfigurationError(f"ASSET_OWNERS_ANALYSTS: there is no group {name!r} here") from error
    if os.geteuid() != 0 and group not in os.getgroups():
        raise ConfigurationError(
            f"ASSET_OWNERS_ANALYSTS: this user is no member of the group {name!r}, so it cannot share with it"
        )
    return group


def load_instance(path: Path) -> Instance:
    """Read and check one instance file.

    Raises:
        ConfigurationError: naming every key that is wrong, its value (never a secret's) and the remedy.
    """
    instance = _read(path, Instance)
    if len(instance.slug) > MAX_NAME:
        raise ConfigurationError(
            f"{path}: name: {instance.name!r} gives an identifier of {len(instance.slug)} letters, more than "
            f"{MAX_NAME}; shorten it"
        )
    if not is_slug(instance.slug):
        raise ConfigurationError(
            f"{path}: name: {instance.name!r} gives no usable identifier; use letters or digits, and no word "
            "that DuckDB, Dagster or Python keeps for itself, such as main, config or class"
        )
    return instance


def _read(path: Path, model: type[SectionT]) -> SectionT:
    """Read a YAML file and check it against the model of what it holds."""
    try:
        text = _text(path)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: the file cannot be read: {error}") from error
    try:
        content = yaml.load(text, Loader=_StrictLoader)  # noqa: S506  (a SafeLoader that refuses double keys)
    # Besides its own errors it raises these: for a date such as 2026-02-30, a tag such as !!int "".
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise ConfigurationError(f"{path}: {_yaml_complaint(error)}") from None  # it quotes the line
    if not isinstance(content, dict):
        first = " and ".join(list(model.model_fields)[:2])
        raise ConfigurationError(f"{path}: must hold `key: value` lines, such as {first}")
    try:
        return model.model_validate(content, context={"folder": path.parent.absolute()})
    except ValidationError as error:
        details = error.errors(include_url=False)
        lines = [_complaint(model, content, detail) for detail in details[:MAX_COMPLAINTS]]
        if len(details) > MAX_COMPLAINTS:
            lines.append(f"and {len(details) - MAX_COMPLAINTS:,} more")
        raise ConfigurationError("\n".join(f"{path}: {line}" for line in lines)) from error


def load_instances(folder: Path) -> list[Instance | BrokenInstance]:
    """Read every `*.yaml` and `*.yml` of a folder; a broken file does not hide the others.

    Two files whose names give the same slug are both broken. A folder that does not exist holds none.
    """
    paths = sorted(path for ending in ("*.yaml", "*.yml") for path in folder.glob(ending))
    loaded = {path: _instance_or_complaint(path) for path in paths}
    usable = {path: instance for path, instance in loaded.items() if isinstance(instance, Instance)}
    for path, instance in usable.items():
        twins = [str(other) for other in usable if other != path and usable[other].slug == instance.slug]
        if twins:
            loaded[path] = (
                f"{path}: name: {instance.name!r} gives the identifier {instance.slug!r}, as does "
                f"{', '.join(twins)}; give each instance its own name"
            )
    taken = {instance.slug for instance in loaded.values() if isinstance(instance, Instance)}
    return [
        BrokenInstance(path, instance, _free_slug(path, taken)) if isinstance(instance, str) else instance
        for path, instance in loaded.items()
    ]


def _instance_or_complaint(path: Path) -> Instance | str:
    try:
        return load_instance(path)
    except ConfigurationError as error:
        return str(error)


def _free_slug(path: Path, taken: set[str]) -> str:
    """An identifier from the file's name that is not taken; takes it."""
    slug = slug_of(path.stem)[: MAX_NAME // 2].strip("_") or "unnamed"
    while slug in taken | _RESERVED_SLUGS:
        slug += "_broken"
    taken.add(slug)
    return slug


# DuckDB's own schemas, and the databases of a session: warehouse.conflicts would be two things at once.
_OF_DUCKDB = {"main", "information_schema", "pg_catalog", "temp", "system", "warehouse", "scratch"}
# What Dagster lets no job be called: one such name, and it loads no instance at all.
_OF_DAGSTER = {
    *keyword.kwlist,
    *("arg_dict", "bool", "conf", "config", "context", "dict", "float", "input", "input_arg_dict", "int"),
    *("meta", "output", "output_arg_dict", "str", "type"),
}
_RESERVED_SLUGS = frozenset(_OF_DUCKDB | _OF_DAGSTER)


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that is written twice, of which YAML would silently keep the last, and what goes too far.

    A few lines of aliases to aliases can stand for more values than there is memory.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._nodes = 0
        self._sizes: dict[yaml.Node | None, int] = {}  # an alias counts as what it stands for

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        before, self._depth = self._nodes, self._depth + 1
        if self._depth > MAX_DEPTH:
            raise _refused(event, f"values are nested more than {MAX_DEPTH} levels deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent) and node not in self._sizes:
            raise _refused(event, "an alias stands for what it is in")
        self._nodes += self._sizes.get(node, 1)
        if self._nodes > MAX_NODES:
            raise _refused(event, f"it holds more than {MAX_NODES:,} values, counting what aliases stand for")
        self._sizes[node] = self._nodes - before
        if isinstance(node, yaml.ScalarNode) and node.tag != _TEXT and len(node.value) > MAX_NUMBER_DIGITS:
            raise _refused(event, f"a number has more than {MAX_NUMBER_DIGITS} digits")
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"the key {key.value} is written twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Refuse what YAML reads as another number than it looks like: 0042 as 34, 1:30 as 90."""
        if not re.fullmatch(r"[+-]?(0|[1-9][0-9]*)", node.value):
            raise yaml.constructor.ConstructorError(
                problem=f"the number {node.value} would be read as {super().construct_yaml_int(node)}; write "
                "it in quotes, or without leading zeros and other signs",
                problem_mark=node.start_mark,
            )
        return super().construct_yaml_int(node)


_TEXT = "tag:yaml.org,2002:str"
_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.construct_yaml_int)


def _refused(event: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def _yaml_complaint(error: Exception) -> str:
    """Where and why a text is no YAML, without what it says there: that may be a secret in clear text."""
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    problem = re.sub("'[^']*'", "…", getattr(error, "problem", None) or str(error))
    if isinstance(error, LookupError | AttributeError | TypeError):
        problem = "a value does not fit its tag, such as !!int; leave the tag away"
    return f"{where}is no usable YAML: {problem}"


def _complaint(model: type[_Section], content: dict[str, Any], detail: Any) -> str:
    """One line for one wrong key: where, its value, what to do."""
    location = [str(part)[:MAX_NAME] for part in detail["loc"]]
    key = ".".join(location)
    if detail["type"] == "missing":
        return f"{key}: is missing; this key is required"
    if detail["type"] == "extra_forbidden":
        known = _keys_of(model, location[:-1])
        near = difflib.get_close_matches(location[-1], known, n=1, cutoff=0)
        return (
            f"{key}: is an unknown key; the nearest known one is {near[0]!r}"
            if near
            else f"{key}: is an unknown key"
        )
    if detail["type"] in {"model_type", "dict_type"}:
        return f"{key}: must hold keys of its own, each with its value, indented below it"
    message = re.sub("^(Value error, |Input |String )", "", detail["msg"])
    message = (message[0].lower() + message[1:]).replace("a valid tuple", "a list")
    value = _value_at(content, location)
    # What should not be there at all may be a secret in the wrong place.
    shown = "" if detail["type"] == "secret" or isinstance(value, dict | list) else f"{_cut(repr(value))} "
    return f"{key}: {shown}{message}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_NAME else f"{text[:MAX_NAME]}…"


def _value_at(content: Any, location: list[str]) -> object:
    for part in location:
        try:
            content = content[int(part)] if isinstance(content, list) else content[part]
        except (KeyError, IndexError, TypeError, ValueError):
            return content
    return content


def _keys_of(model: type[BaseModel], location: list[str]) -> list[str]:
    for part in location:
        field = model.model_fields[part]
        candidates = (field.annotation, *get_args(field.annotation))
        model = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return list(model.model_fields)
