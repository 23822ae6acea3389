"""The asset-inventory service: general calls by its convention, lists, reads and writes of single assets.

`get` and `post` reach any endpoint (rules 5.1). The instance's contract has what the specification does not
show about the others (rules 5.5).
"""

import itertools
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import polars as pl
import tenacity

from ownership.data_checks import too_many_unreadable, unreadable_assets
from ownership.names import printable
from resources.errors import ConfigurationError, ProtocolError, ServiceError, TransientError
from resources.http import Transport
from resources.inventory.adapter import Inventory, Values
from resources.inventory.records import (
    Fields,
    Kind,
    host_form,
    host_rows,
    taken_fields,
    user_rows,
)
from resources.inventory.session import PROFILE, Envelope, InventorySession, open_envelope
from resources.search.asking import leaves
from resources.settings import Instance, ListCall

MAX_LIST_READS = 3  # attempts for a list that changes while it is read
ASSETS_TOGETHER = 2_000  # assets that become rows together; page by page would take much longer
MAX_PAGES_READ_AGAIN = 8
MAX_TIMES_ANNOUNCED = 100  # a list that is so much longer than announced never ends

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Page:
    """One page of a list, or its `refusal`; `size` is the number of assets announced for the whole list."""

    number: int
    size: int = 0
    ids: Sequence[str] = ()
    items: Sequence[Fields] = ()
    refusal: ServiceError | None = None


class _IncompleteError(ProtocolError):
    """A list was not read whole; another attempt may succeed."""


def inventory_transport(instance: Instance, *, sleep: Callable[[float], None] = time.sleep) -> Transport:
    """Return the transport to the inventory; ConfigurationError: `ca_file` cannot be read."""
    platform = instance.platform
    return Transport(
        service="inventory service",
        section="platform.",
        url=platform.url,
        ignore_ssl=platform.ignore_ssl,
        ca_file=platform.ca_file,
        connections=instance.writes.concurrency,
        sleep=sleep,
    )


class AssetInventory(Inventory):
    """The inventory service of one instance; opening it resolves the secrets, the first call logs in.

    Every call may raise a ServiceError, after its retries. `clock` returns seconds since the epoch.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.instance = instance
        self._platform = platform = instance.platform
        self.transport = inventory_transport(instance, sleep=sleep)
        self.where = self.transport.where
        taken, contract = taken_fields(instance), platform.contract
        self.takes: Collection[str] = taken
        sent = (f"{contract.fields_in}.{name}".strip(".") for name in taken.values())
        self._own = tuple(f"{path}." for path in (*sent, *contract.changed_by_writes))
        self.reads_single_hosts = contract.read is not None
        self.how_read = "platform.contract (read, fields_in) and platform_user_field"
        self.how_written = "platform.contract (update, enrich_fields, changed_by_writes), platform_user_field"
        self.account = platform.email
        self.rows = {"hosts": host_rows(instance), "users": user_rows(instance)}
        self._session = InventorySession(platform, self.transport, clock)

    def __exit__(self, *_: object) -> None:
        self._session.close()

    # As an `Inventory`

    def probe(self) -> None:
        """Raise TransientError if the service does not answer within seconds."""
        self.transport.probe("GET", PROFILE)

    def hosts(self) -> pl.DataFrame:
        """List the host assets as rows of `inventory_hosts`; ProtocolError if too many cannot be read."""
        return self._listed("hosts")

    def users(self) -> pl.DataFrame:
        """List the user assets as rows of `inventory_users`; raises as `hosts`."""
        return self._listed("users")

    def host(self, host_id: str) -> Mapping[str, Any]:
        """Read one host, as `Inventory.host`."""
        call = self._platform.contract.read
        if call is None:
            raise ConfigurationError("platform.contract.read: is null, so single assets cannot be read")
        form, setting = {call.id_param: host_id}, "platform.contract.read.path"
        item = self._call("POST", call.path, form, repeatable=True, setting=setting).payload()
        if not isinstance(item, dict) or self._ids_of([item], call.path) != [host_id]:
            raise ProtocolError(
                f"{self.where} answered {call.path} with an asset that is not {host_id}; "
                "check path and id_param of platform.contract.read"
            )
        host = self.rows["hosts"].record(host_id, item)
        if host["problem"]:
            raise ProtocolError(f"Asset {host_id}: {host['problem']}")
        return {**host, "others": self._others(item)}

    def listed_hosts(self) -> dict[str, Mapping[str, Any]]:
        """List the hosts as `host` returns them."""
        others: dict[str, bytes] = {}
        rows = self._listed("hosts", others).iter_rows(named=True)
        return {row["host_id"]: {**row, "others": others[row["host_id"]]} for row in rows}

    def write(self, host_id: str, values: Values, *, right_before: Callable[[], None] | None = None) -> None:
        """Set values of a host, as `Inventory.write`.

        Raises:
            SessionExpiredError: the session had expired, so the service did nothing.
            TransientError: the service may have done it or not (unless `not_done`), also after an answer
                that is not valid.
        """
        call = self._platform.contract.update
        fields = host_form(self.instance, values)
        try:
            self._call(
                "POST",
                call.path,
                {**fields, call.id_param: host_id},
                repeatable=False,
                setting="platform.contract.update.path",
                right_before=right_before,
                personal=tuple(map(str, fields.values())),
            ).payload()
        except ProtocolError as error:
            raise TransientError(str(error)) from error

    # Calls by the convention (rules 5.1)

    def get(
        self, path: str, params: Mapping[str, str] | None = None, *, tenant: bool = True, raw: bool = False
    ) -> Any:
        """Read with a query string; return the member `data`, or else all but status and message.

        `path` starts with /api/v1; `tenant` adds the tenant parameter. A `raw` body, such as a download, has
        no envelope and is returned as bytes.
        """
        return self._call("GET", path, params, tenant=tenant, repeatable=True, raw=raw).payload()

    def post(
        self,
        path: str,
        form: Mapping[str, str] | None = None,
        *,
        repeatable: bool,
        tenant: bool = True,
        files: Mapping[str, tuple[str, bytes, str]] | None = None,
    ) -> Any:
        """Send a form, with `files` (file name, content and media type by field) as multipart/form-data.

        Returns as `get`. A call that changes something is not `repeatable`: a 401 is SessionExpiredError.
        """
        return self._call("POST", path, form, tenant=tenant, repeatable=repeatable, files=files).payload()

    def _call(
        self,
        method: str,
        path: str,
        values: Mapping[str, str] | None,
        *,
        repeatable: bool,
        tenant: bool = True,
        setting: str | None = None,
        sent: str = "",
        raw: bool = False,
        **arguments: Any,
    ) -> Envelope:
        """Send values in the query string or as a form, and open the answer; calls are retried only here."""
        if tenant:
            values = {**(values or {}), self._platform.contract.tenant_param: self._platform.tenant_id}
            sent = f" (check platform.tenant_id: {self._platform.tenant_id}{sent})"
        arguments["params" if method == "GET" else "data"] = values

        def once() -> Envelope:
            answer = self._session.request(method, path, resend=repeatable, **arguments)
            return open_envelope(answer, path, self.transport, sent=sent, setting=setting, raw=raw)

        return self.transport.retrying()(once) if repeatable else once()

    # Lists (rules 5.4)

    @tenacity.retry(
        retry=tenacity.retry_if_exception_type(_IncompleteError),
        stop=tenacity.stop_after_attempt(MAX_LIST_READS),
        reraise=True,
    )
    def _listed(self, kind: Kind, others: dict[str, bytes] | None = None) -> pl.DataFrame:
        """Read a list to its end, several pages at a time, and return a row for each asset.

        It is complete once as many distinct ids were read as the service announced at first, a further page
        adds none, and none was missed. It may grow at its end; a list that changes otherwise is read up to
        `MAX_LIST_READS` times. The last row of an id is kept. Single assets may be unreadable (rules 2.7).
        `others` is filled by id. ProtocolError: the list cannot be completed or read.
        """
        listed_at, rows = datetime.now(UTC), self.rows[kind]
        known = self.first_pages(kind)
        size, complete, reason = known[0].size, False, ""
        last_size = size
        frames: list[pl.DataFrame] = []
        ids: list[str] = []
        items: list[Fields] = []
        numbers: list[int] = []
        seen: set[str] = set()
        overlap = False
        for page in itertools.chain(known, self._further(kind, known)):
            overlap = overlap or not seen.isdisjoint(page.ids)
            if page.refusal or (numbers and seen.issuperset(page.ids)):
                complete = len(seen) >= size
                reason = f", and then {page.refusal}" if page.refusal else ""
                break
            if page.size < size:  # an asset was deleted, so one of the next page may be missed
                reason = f", and then announced {page.size}"
                break
            last_size = max(page.size, last_size)
            seen.update(page.ids)
            numbers.append(page.number)
            ids += page.ids
            items += page.items
            if others is not None:
                others.update(zip(page.ids, map(self._others, page.items), strict=True))
            if len(ids) >= ASSETS_TOGETHER:
                frames.append(rows.table(ids, items))
                ids, items = [], []
            if len(seen) > MAX_TIMES_ANNOUNCED * max(size, 1):
                raise ProtocolError(
                    f"{self.where} announces {size} {kind} and lists {len(seen)} and more; check "
                    f"platform.contract.{kind}"
                )
        if complete and self._has_all(kind, numbers, seen, last_size):
            frames.append(rows.table(ids, items))
            frame = pl.concat(frames).unique(rows.id_column, keep="last", maintain_order=True)
            self._require_readable(kind, frame)
            return frame.with_columns(listed_at=listed_at)
        if isinstance(page.refusal, TransientError) and not complete:
            raise page.refusal
        if complete or overlap:
            reason += ", and assets moved from page to page: set a sort order in params"
        reason = reason or "; check that the account may see all"
        raise _IncompleteError(
            f"{self.where}: incomplete list after {MAX_LIST_READS} attempts: {len(seen)} of {size} {kind}"
            f"{reason} (platform.contract.{kind}); result not used"
        )

    def _has_all(self, kind: Kind, numbers: Sequence[int], seen: set[str], size: int) -> bool:
        """Read some pages again, and return whether they have no ids but those that were read.

        If an asset of a page that was read is deleted, the one that moves to that page from the next one is
        missed, and the size of the list does not show it if it has gained another. The last page may have
        gained some, and any page as many as the list has grown by.
        """
        if len(seen) > size:
            log.warning(f"{self.where} announces {size} {kind} and lists {len(seen)}; all of them are used")
        before_last = numbers[:-1]
        chosen = before_last[:: -(-len(before_last) // MAX_PAGES_READ_AGAIN) or 1]
        return not any(
            page.refusal or len({*page.ids} - seen) > max(page.size - size, 0)
            for page in self.transport.in_parallel(partial(self._page, kind), chosen)
        )

    def _require_readable(self, kind: Kind, frame: pl.DataFrame) -> None:
        """Refuse a list with so many unreadable assets that the contract or a field name must be wrong."""
        odd = unreadable_assets(frame)
        if too_many_unreadable(odd.height, frame.height):
            first = odd.head(3).iter_rows()
            named = (f"{printable(one)}: {why}" if kind == "hosts" else why for one, why in first)
            raise ProtocolError(
                f"{odd.height:,} of the {frame.height:,} {kind} that the inventory lists cannot be read; "
                "nothing was written. Check the names of their fields (platform_...) and platform.contract "
                f"({kind}, fields_in). The first: {'; '.join(dict.fromkeys(named))}"
            )

    def first_pages(self, kind: Kind) -> list[Page]:
        """Return the first page of a list, 0 or 1, with the second if both had to be read.

        ProtocolError: none of their items has fields at `fields_in`, which single odd ones may lack.
        """
        pages = self._first_pages(kind)
        items = [item for page in pages for item in page.items]
        if items and not any(isinstance(self.rows[kind].fields_of(item), dict) for item in items):
            raise ProtocolError(
                f"{self.where} lists {kind} ({items[0]['id']} is the first) whose fields are not at one "
                f"place, {self._platform.contract.fields_in!r}; check platform.contract.fields_in"
            )
        return pages

    def _first_pages(self, kind: Kind) -> list[Page]:
        # A service that starts with page 1 refuses page 0, fails, or returns it empty, or page 1 instead.
        zero = self._page(kind, 0)
        failure = zero.refusal if isinstance(zero.refusal, TransientError) else None
        if failure and failure.asks_to_wait:
            raise failure
        if not zero.refusal and len(zero.ids) == zero.size:
            return [zero]
        one = self._page(kind, 1)
        if zero.ids and {*zero.ids} != {*one.ids}:
            return [zero, one]
        if one.refusal:
            raise failure or one.refusal
        if one.size and not one.ids:
            reason = f" ({zero.refusal})" if zero.refusal else "; check that the account may see them"
            raise failure or _IncompleteError(
                f"{self.where}: incomplete list: 0 of {one.size} {kind} on the first page{reason} "
                f"(platform.contract.{kind}); result not used"
            )
        return [one]

    def _further(self, kind: Kind, known: Sequence[Page]) -> Iterator[Page]:
        """Yield the pages after the known ones, without end; the announced ones and one more in parallel."""
        begin = known[-1].number + 1
        # The service may return fewer items than asked for.
        pages = -(-known[0].size // max(len(known[0].ids), 1))
        end = max(known[0].number + pages, begin)
        page = partial(self._page, kind)
        yield from self.transport.in_parallel(page, range(begin, end + 1))
        yield from map(page, itertools.count(end + 1))

    def _page(self, kind: Kind, number: int) -> Page:
        contract = self._platform.contract
        call: ListCall = getattr(contract, kind)
        form = {**call.params, "page": str(number), "size": str(contract.page_size)}
        setting = f"platform.contract.{kind}.path" if number <= 1 else None
        sent = f"; platform.contract.page_size: {contract.page_size}"
        try:
            answer = self._call("POST", call.path, form, repeatable=True, setting=setting, sent=sent)
            payload = answer.payload()
        except ServiceError as error:
            return Page(number, refusal=error)
        match payload:
            case {"size": 0, "data": None}:
                return Page(number)
            case {"size": int() as size, "data": list() as items} if type(size) is int and all(
                isinstance(item, dict) for item in items
            ):
                ids = self._ids_of(items, call.path)
                return Page(number, size, ids, items)
        text = "without a list of items and their number; check the paths in platform.contract"
        return Page(number, refusal=ProtocolError(f"{self.where} answered {call.path} {text}"))

    # Parts of items

    def _ids_of(self, items: Sequence[Fields], path: str) -> list[str]:
        ids = [item.get("id") for item in items]
        for place, one in enumerate(ids):
            if one == "" or type(one) not in {str, int}:
                raise ProtocolError(
                    f"{self.where} answered {path} with an item whose id is not a text or a whole number: "
                    f"{repr(one)[:80]}, item {place + 1} of its page, after {ids[:place][-1:]}"
                )
        return list(map(str, ids))

    def _others(self, item: Fields) -> bytes:
        """Return the values of an item that a write must not change, as in `Inventory.host`."""
        return msgspec.json.encode([leaf for leaf in leaves(item) if not f"{leaf[0]}.".startswith(self._own)])
