"""The instance file: one YAML file an instance, checked as a whole, with messages for its author.

Its keys are those of rules 5.5 and 6. Secrets are only named here (`Secret`); they are
resolved when a client is opened and never kept in a settings object.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationInfo
from pydantic_core import PydanticCustomError

from ownership.rules import AccountKind, EvidenceMetric, HostKind, Rules
from resources.errors import ConfigurationError
from resources.settings.names import MAX_NAME, slug_of
from resources.settings.secrets import Secret
from resources.settings.section import FilePath, Section, beside_the_file, secret_error
from resources.settings.yaml_file import read_section

MAX_LOOKBACK_DAYS = 3660
MAX_TEXT = 1000
"""Characters of a name, a pattern or an address: messages repeat it, and it goes into regular expressions."""
DEFAULT_QUERY = "event.code:4624 AND event.outcome:success AND process.name:svchost.exe"


def _service_url(value: str) -> str:
    # No refused address is shown: it may hold a password in the wrong place.
    not_an_address = secret_error("is not an address; write https://HOST:PORT")
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise not_an_address from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise not_an_address
    if parts.username or parts.password:
        raise secret_error("holds a user or password; write them under username and password")
    if parts.query or parts.fragment:
        raise secret_error("has a query or fragment; write https://HOST:PORT and, if need be, a path")
    if len(value) > MAX_TEXT:
        raise secret_error("is longer than any address; write https://HOST:PORT and, if need be, a path")
    return value.rstrip("/")


def _without_api(value: str) -> str:
    if re.search("/api/v1(/|$)", urlsplit(value).path):
        raise secret_error("is the address of the service itself; write it without /api/v1")
    return value


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
        try:
            return json.dumps(value, default=str, allow_nan=False)  # YAML reads 2026-01-31 as a date
        except ValueError as error:
            raise ValueError("holds a number that JSON does not know, .nan or .inf") from error
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            json.loads(value, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"starts with {{ and is no JSON: {error}") from error
    return value


def _refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python reads in JSON and no service does."""
    raise ValueError(f"{name} is no number of JSON")


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


def _plain_value(value: object) -> object:
    if not isinstance(value, bool | int | str):
        raise ValueError("must be true, false, a whole number or text")  # noqa: TRY004  (pydantic's way)
    return value


def _id_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Url = Annotated[str, AfterValidator(_service_url)]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
FieldName = Text
IdText = Annotated[Text, BeforeValidator(_id_text, json_schema_input_type=Text | int)]
Weight = Annotated[int, Field(ge=1, le=1000, strict=True)]
ApiPath = Annotated[str, Field(pattern="^/[^/]", max_length=MAX_TEXT)]
"""A path below the base URL; anything else could lead to another service."""


class ListCall(Section):
    """A listing endpoint: its path and the parameters that choose what it lists."""

    path: ApiPath
    params: dict[str, Annotated[str, BeforeValidator(_id_text, json_schema_input_type=str | int)]] = Field({})


class ItemCall(Section):
    """An endpoint for one asset: its path and the name of the parameter that carries the asset's id."""

    path: ApiPath
    id_param: Text = "id"


class MfaRequired(Section):
    """What in the log-in answer says that a code is needed: a dotted path and its value."""

    member: Text = "data.mfa_required"
    equals: Annotated[bool | int | str, BeforeValidator(_plain_value)] = True


class EnrichFields(Section):
    """Host fields that receive the owner's values; the keys are the user asset's fields."""

    user_department: FieldName | None = "department"
    criticality: FieldName | None = "criticality"


class Contract(Section):
    """What the specification of the inventory service does not show (rules 5.5)."""

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
    fields_in: str = Field(
        "", max_length=MAX_TEXT, description="dotted path inside an item to its fields; empty = beside its id"
    )
    page_size: int = Field(1000, ge=1, description="items asked for in a page; the service may give fewer")
    enrich_fields: EnrichFields = Field(EnrichFields(), description="user asset's field: host asset's field")


def _contract_file(value: object, info: ValidationInfo) -> object:
    """Read the contract from the file whose path is given in its place: instances may share one."""
    return read_section(beside_the_file(Path(value), info), Contract) if isinstance(value, str) else value


class Platform(Section):
    """The asset-inventory service."""

    url: Annotated[Url, AfterValidator(_without_api)] = Field(description="base URL, without /api/v1")
    email: Text = Field(description="account that signs in")
    password: Secret = Field(description="its password")
    mfa_secret: Secret | None = Field(None, description="its TOTP secret (base32), where MFA applies")
    tenant_id: IdText = Field(description="tenant that holds the assets")
    ignore_ssl: bool = Field(False, description="skip certificate checks; prefer ca_file")
    ca_file: FilePath | None = Field(None, description="PEM file with the certificate authority to trust")
    contract: Annotated[Contract, BeforeValidator(_contract_file, json_schema_input_type=Contract | Text)] = (
        Field(
            Contract(),
            description="what the specification does not show, or the path of a YAML file with it",
        )
    )

    @property
    def address(self) -> str:
        """The URL in one spelling: scheme and host in lower case, without the scheme's own port."""
        parts = urlsplit(self.url)
        port = {"http": 80, "https": 443}[parts.scheme]
        host = parts.netloc.lower().removesuffix(f":{port}")
        return f"{parts.scheme}://{host}{parts.path}"

    @property
    def place(self) -> str:
        """The inventory that is meant, whoever signs in: its address and the tenant."""
        return f"{self.address}, tenant {self.tenant_id}"


class ScanSettings(Section):
    """Which days are looked at, when, and what is done with the owners found."""

    lookback_days: int = Field(
        30,
        ge=1,
        le=MAX_LOOKBACK_DAYS,
        description="look-back window in calendar days, the running one included",
    )
    enrich: bool = Field(True, description="enrich host information by asset owner")
    timezone: Annotated[str, AfterValidator(_known_timezone)] = Field(
        "UTC", description="time zone of the days"
    )
    first_day: date = Field(
        date(2020, 1, 1),
        ge=date(1970, 1, 1),
        le=date(2999, 12, 31),
        description="earliest day that is ever looked at, in 1970 or later",
    )
    late_days: int = Field(
        2, ge=0, le=60, description="days after its end during which a day may still receive events"
    )
    schedule: Annotated[str, AfterValidator(_cron_expression)] | None = Field(
        "0 5 * * *", description="cron expression in `timezone`; null = no schedule"
    )
    require_complete_window: bool = Field(
        False, description="write nothing when days of the window lack events"
    )


class RuleSettings(Section):
    """How owners are decided (rules 1, 2)."""

    share_threshold_percent: int = Field(
        Rules.share_threshold_percent,
        ge=50,
        le=99,
        strict=True,
        description="the leader of several users needs more than this share",
    )
    hostname_match: Literal["exact", "short"] = Field(
        Rules.hostname_match, description="compare whole names, or their first label"
    )
    exclude_users: tuple[Text, ...] = Field(
        Rules.exclude_users, description="user names that are not people; * and ? are wildcards"
    )
    exclude_hosts: tuple[Text, ...] = Field(
        Rules.exclude_hosts, description="host names that get no owner; * and ? are wildcards"
    )
    min_events: int = Field(
        Rules.min_events, ge=1, description="fewest logon events of a host that count as evidence"
    )
    min_active_days: int = Field(
        Rules.min_active_days, ge=1, le=3660, description="fewest days with a logon of the leading user"
    )
    evidence_metric: EvidenceMetric = Field(
        Rules.evidence_metric,
        description="what counts when users are compared: logon events, or days with one",
    )
    logon_type_weights: dict[IdText, Weight] = Field(
        {},
        description="what a logon counts for (1 to 1000) by its value in `logon_type_field`; others count 1",
    )
    skip_account_kinds: tuple[AccountKind, ...] = Field(
        Rules.skip_account_kinds, description="kinds of accounts whose logons do not count"
    )
    skip_host_kinds: tuple[HostKind, ...] = Field(
        Rules.skip_host_kinds, description="kinds of hosts that get no owner"
    )

    def as_rules(self) -> Rules:
        """The same values as the rules take them."""
        return Rules(**self.model_dump())


class WriteSettings(Section):
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
    plan_days: int = Field(7, ge=1, le=3_660, description="a stored plan older than that is not applied")


class KeepSettings(Section):
    """How long the tables remember."""

    evidence_days: int = Field(400, ge=1, le=36_500, description="days of logon counts kept")
    history_days: int = Field(
        400, ge=1, le=36_500, description="days for which past decisions, plans and writes are kept"
    )


class Instance(Section):
    """One integration instance of type `search_asset_owner` (rules 6.1)."""

    name: str = Field(
        min_length=1,
        max_length=MAX_NAME,
        description="label; its slug names job, schedule, schema and folder",
    )
    url: Url = Field(description="base URL of the search service")
    username: Text = Field(description="search-service user")
    password: Secret = Field(description="password of that user")
    cookies: Annotated[dict[str, Secret], BeforeValidator(_cookie_names)] = Field(
        {}, description="extra cookies added to search requests, name: value"
    )
    index: Text = Field("logs-*", description="index pattern to search")
    query: Annotated[str, BeforeValidator(_query_text, json_schema_input_type=str | dict[str, Any])] = Field(
        DEFAULT_QUERY,
        min_length=1,
        description="logon events: Lucene query-string syntax, or query DSL when it starts with {",
    )
    user_field: FieldName = Field("user.name", description="document field holding the username")
    hostname_field: FieldName = Field("agent.name", description="document field holding the hostname")
    time_field: FieldName = Field("@timestamp", description="document field holding the time of the event")
    logon_type_field: FieldName | None = Field(
        None,
        description="document field holding the kind of logon, for `rules.logon_type_weights`; null = off",
    )
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
    _file: Path | None = PrivateAttr(None)

    def model_post_init(self, context: Any) -> None:
        """Remember the file that this was read from."""
        self._file = (context or {}).get("file")

    @property
    def file(self) -> Path | None:
        """The file that this was read from; None: from none."""
        return self._file

    @property
    def slug(self) -> str:
        """The name as an identifier: letters, digits and underscores."""
        return slug_of(self.name)

    def require_secrets(self) -> None:
        """Resolve every secret once, so that all that are missing are named at once."""
        secrets = {"password": self.password, "platform.password": self.platform.password}
        secrets |= {f"cookies.{name}": value for name, value in self.cookies.items()}
        if self.platform.mfa_secret:
            secrets["platform.mfa_secret"] = self.platform.mfa_secret
        missing = []
        for setting, secret in secrets.items():
            try:
                secret.resolve(setting)
            except ConfigurationError as error:
                missing.append(str(error))
        if missing:
            raise ConfigurationError(". ".join(missing))

    @property
    def target(self) -> str:
        """The inventory that is written to: its address, the tenant, and a fingerprint (rules 7.8).

        The fingerprint changes whenever the same id could be another asset's, or the same request could set
        another field: with the address, the tenant, and what contract and fields say about host assets.
        """
        platform, contract = self.platform, self.platform.contract
        meaning = contract.model_dump(mode="json", exclude={"users", "mfa_required", "page_size"})
        fields = (self.platform_user_field, self.platform_hostname_field)
        text = json.dumps([platform.address, platform.tenant_id, meaning, fields], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return f"{platform.address} tenant {platform.tenant_id} {digest}"
