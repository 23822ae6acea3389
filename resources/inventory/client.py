"""The asset-inventory service: general calls by its convention, lists, reads and writes of single assets.

Any endpoint is reached with `get`, `post`, `upload` and `download` (rules 5.1). What the specification does
not show about the others comes from the instance's contract (rules 5.5). Callers outside this package use it
as an `Inventory` (`resources.inventory.adapter`).
"""

import itertools
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self, TypeVar

import polars as pl
import tenacity

from ownership.names import printable
from ownership.quality import too_many_unreadable, unreadable_assets
from resources.errors import ConfigurationError, ProtocolError, ServiceError, TransientError
from resources.findings import Finding
from resources.http import Answer, Transport
from resources.inventory.envelope import Envelope, envelope_members, open_envelope
from resources.inventory.findings import inventory_findings
from resources.inventory.records import (
    AssetRows,
    Fields,
    Values,
    host_form,
    host_rows,
    taken_fields,
    user_rows,
)
from resources.inventory.session import PROFILE, InventorySession
from resources.settings import Instance, ItemCall, ListCall

READINGS = 3  # of a list that changes while it is read
ROWS_AT_ONCE = 10_000

T = TypeVar("T")
OnProgress = Callable[[int, int], None]
"""Called with how many of how many are done."""


def no_progress(_done: int, _total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Page:
    """One page of a list: its number, the size announced for the whole list, its assets' ids and fields.

    A refusal may only mean that there is no such page.
    """

    number: int
    size: int = 0
    ids: Sequence[str] = ()
    fields: Sequence[Fields] = ()
    refusal: ServiceError | None = None


class _IncompleteError(ProtocolError):
    """A reading of a list that did not give all of it; the next one may."""


class AssetInventory:
    """The inventory service of one instance, a context manager; safe to use from several threads.

    Opening it resolves the secrets; the first call logs in. Every call may raise a ServiceError of
    `resources.errors`; those that may be repeated were by then. `clock` gives seconds since the epoch.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        platform = instance.platform
        self._instance = instance
        self._platform = platform
        self._connections = instance.writes.concurrency
        self._sleep = sleep
        self.transport = Transport(
            service="inventory service",
            section="platform.",
            url=platform.url,
            ignore_ssl=platform.ignore_ssl,
            ca_file=platform.ca_file,
            connections=self._connections,
        )
        self.where = self.transport.where
        self.takes: Collection[str] = taken_fields(instance)
        self.reads_single_hosts = platform.contract.read is not None
        self.how_read = "platform.contract (read, fields_in) and platform_user_field"
        self.how_written = "platform.contract.update (path, id_param) and platform_user_field"
        self._host_rows = host_rows(instance)
        self._session = InventorySession(platform, self.transport, clock=clock, sleep=sleep)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    # What a run needs of an inventory

    def probe(self) -> None:
        """Raise TransientError when the service does not answer anything within seconds."""
        self.transport.probe("GET", PROFILE)

    def hosts(self, on_progress: OnProgress = no_progress) -> pl.DataFrame:
        """List the host assets as rows of `inventory_hosts`.

        Raises:
            ProtocolError: so many cannot be read that the contract or the name of a field must be wrong.
        """
        return self._listed("hosts", self._platform.contract.hosts, self._host_rows, on_progress)

    def users(self, on_progress: OnProgress = no_progress) -> pl.DataFrame:
        """List the user assets as rows of `inventory_users`; raises as `hosts`."""
        return self._listed("users", self._platform.contract.users, user_rows(self._instance), on_progress)

    def host(self, host_id: str) -> Mapping[str, Any]:
        """Read one host: a row of `inventory_hosts` as plain values, without listed_at."""
        call = self._platform.contract.read
        if call is None:
            raise ConfigurationError("platform.contract.read: is null, so no single asset can be read")
        item = self._of_one_host(call, host_id, {}, "read", repeatable=True)
        if not isinstance(item, dict) or self._ids_of([item], call.path) != [host_id]:
            raise ProtocolError(
                f"{self.where} answered {call.path} with something else than asset {host_id}; "
                "check path and id_param of platform.contract.read"
            )
        host = self._host_rows.record(host_id, self._fields_of([item], [host_id], call.path)[0])
        if host["problem"]:
            raise ProtocolError(f"Asset {host_id}: {host['problem']}")
        return host

    def write(self, host_id: str, values: Values, *, right_before: Callable[[], None] | None = None) -> None:
        """Set the values of a host that are named, in one request, which is sent once; None clears one.

        `right_before` is called when the connection stands and the request is about to go out; what it raises
        keeps the request from being sent.

        Raises:
            SessionExpiredError: the session had ended; the service says that it did nothing.
            TransientError: the service may have applied it or not, also when its answer made no sense; where
                `not_done` is true it has not.
        """
        call, form = self._platform.contract.update, host_form(self._instance, values)
        try:
            self._of_one_host(call, host_id, form, "update", repeatable=False, right_before=right_before)
        except ProtocolError as error:
            raise TransientError(str(error)) from error

    def _of_one_host(
        self, call: ItemCall, host_id: str, fields: Mapping[str, str], name: str, **arguments: Any
    ) -> Any:
        """What the service says to a call of the contract about one host; `name` is the call's there."""
        form = {**fields, call.id_param: host_id}
        setting = f"platform.contract.{name}.path"
        return self._envelope("POST", call.path, form, setting=setting, **arguments).payload

    def findings(self) -> Iterator[Finding]:
        """Try the service without writing, and say what works and what to fix."""
        return inventory_findings(self._instance, self)

    def _listed(self, kind: str, call: ListCall, rows: AssetRows, on_progress: OnProgress) -> pl.DataFrame:
        """List hosts or users; single ones that cannot be read are let pass (rules 2.7)."""
        listed_at = datetime.now(UTC)
        frame = self.list_assets(call, rows.table, on_progress=on_progress)
        odd = unreadable_assets(frame)
        if too_many_unreadable(odd.height, frame.height):
            first = "; ".join(f"{printable(one)}: {problem}" for one, problem in odd.head(3).iter_rows())
            raise ProtocolError(
                f"{odd.height:,} of the {frame.height:,} {kind} that the inventory lists cannot be read; "
                "nothing was written. Check the names of their fields (platform_...) and platform.contract "
                f"({kind}, fields_in). The first are {first}"
            )
        return frame.with_columns(listed_at=listed_at)

    # Calls by the convention (rules 5.1)

    def get(self, path: str, params: Mapping[str, str] | None = None, *, tenant: bool = True) -> Any:
        """Read with a query string; give what lies under `data`, or else beside status and message.

        `path` is from /api/v1 on; `tenant` says whether to add the tenant parameter.
        """
        return self._envelope("GET", path, params, tenant=tenant, repeatable=True).payload

    def post(
        self, path: str, form: Mapping[str, str] | None = None, *, repeatable: bool, tenant: bool = True
    ) -> Any:
        """Send a form; as `get`. Only what changes nothing is `repeatable`: after a failure or a 401.

        Raises:
            SessionExpiredError: the session had ended, and the call is not repeatable.
        """
        return self._envelope("POST", path, form, tenant=tenant, repeatable=repeatable).payload

    def upload(
        self,
        path: str,
        files: Mapping[str, tuple[str, bytes, str]],
        form: Mapping[str, str] | None = None,
        *,
        tenant: bool = True,
    ) -> Any:
        """Send files as multipart/form-data, once; `files` are file name, content and media type by field."""
        return self._envelope("POST", path, form, tenant=tenant, repeatable=False, files=files).payload

    def download(self, path: str, params: Mapping[str, str] | None = None, *, tenant: bool = True) -> bytes:
        """Read a raw body that comes without an envelope; its failures come with one (rules 5.1)."""

        def raw(answer: Answer) -> bytes:
            refused = answer.status >= 400 or envelope_members(answer.body)
            if refused and (refusal := self._opened(answer, path, tenant=tenant).refusal):
                raise refusal
            return answer.body

        return self._exchange("GET", path, params, raw, tenant=tenant, repeatable=True)

    def _envelope(
        self,
        method: str,
        path: str,
        values: Mapping[str, str] | None,
        *,
        tenant: bool = True,
        setting: str | None = None,
        **arguments: Any,
    ) -> Envelope:
        def envelope(answer: Answer) -> Envelope:
            return self._opened(answer, path, tenant=tenant, setting=setting)

        return self._exchange(method, path, values, envelope, tenant=tenant, **arguments)

    def _exchange(
        self,
        method: str,
        path: str,
        values: Mapping[str, str] | None,
        read: Callable[[Answer], T],
        *,
        tenant: bool,
        repeatable: bool,
        **arguments: Any,
    ) -> T:
        """Send values in the query string or as a form, and read the answer; the only place that retries."""
        tenant_id = {self._platform.contract.tenant_param: self._platform.tenant_id} if tenant else {}
        arguments["params" if method == "GET" else "data"] = {**(values or {}), **tenant_id}

        def once() -> T:
            return read(self._session.exchange(method, path, resend=repeatable, **arguments))

        return self.transport.retrying(self._sleep)(once) if repeatable else once()

    def _opened(self, answer: Answer, path: str, *, tenant: bool, setting: str | None = None) -> Envelope:
        tenant_id = self._platform.tenant_id if tenant else None
        return open_envelope(answer, path, self.transport, tenant=tenant_id, setting=setting)

    # Lists (rules 5.4)

    @tenacity.retry(
        retry=tenacity.retry_if_exception_type(_IncompleteError),
        stop=tenacity.stop_after_attempt(READINGS),
        reraise=True,
    )
    def list_assets(
        self,
        call: ListCall,
        rows_of: Callable[[Sequence[str], Sequence[Fields]], pl.DataFrame],
        *,
        on_progress: OnProgress = no_progress,
    ) -> pl.DataFrame:
        """Read a list to its end, several pages at a time; `rows_of` makes rows of ids and fields of a page.

        It is complete when as many distinct ids were read as the service announces. A list that changes
        meanwhile is read again, up to `READINGS` times. Gives a row for each asset, in the order of the
        service; of an id that came twice, the last one. ProtocolError: the list cannot be completed or read.
        """
        known = self.first_pages(call)
        size = known[0].size
        frames: list[pl.DataFrame] = []
        rows: dict[str, int] = {}
        ids: list[str] = []
        fields: list[Fields] = []
        read, reason = 0, ""
        for page in itertools.chain(known, self._further(call, known)):
            if page.refusal or page.size != size:
                reason = f", and then {page.refusal or f'announced {page.size}'}"
                break
            before = len(rows)
            rows.update(zip(page.ids, range(read, read + len(page.ids)), strict=True))
            read += len(page.ids)
            ids += page.ids
            fields += page.fields
            if len(rows) == size or len(ids) >= ROWS_AT_ONCE:
                frames.append(rows_of(ids, fields))
                ids, fields = [], []
            on_progress(len(rows), size)
            if len(rows) == size:
                return pl.concat(frames)[list(rows.values())]
            if len(rows) == before or len(rows) > size:
                break
        raise _IncompleteError(
            f"{self.where} announced {size} items for {call.path}, gave {len(rows)} distinct ones{reason}; "
            f"a list with gaps is not used (last of {READINGS} readings)"
        )

    def first_pages(self, call: ListCall) -> list[Page]:
        """Find the first page of a list, number 0 or 1; the second comes with it where both had to be read.

        A service that begins with 1 refuses page 0, gives it empty, or gives page 1 instead.
        """
        zero = self._page(call, 0)
        if not zero.refusal and len(zero.ids) == zero.size:
            return [zero]
        one = self._page(call, 1)
        if zero.ids and zero.ids != one.ids:
            return [zero, one]
        if one.refusal:
            raise one.refusal
        if one.size and not one.ids:
            raise _IncompleteError(
                f"{self.where} announced {one.size} items for {call.path} and gave 0 on the first page"
            )
        return [one]

    def _further(self, call: ListCall, known: Sequence[Page]) -> Iterator[Page]:
        """Yield the pages after those that are known, without an end; several are asked for at once.

        How many there are follows from the first one, for the service may give fewer items than asked for.
        """
        begin = known[-1].number + 1
        pages = -(-known[0].size // max(len(known[0].ids), 1))
        end = max(known[0].number + pages, begin)
        with ThreadPoolExecutor(self._connections) as executor:
            for start in range(begin, end, self._connections):
                numbers = range(start, min(start + self._connections, end))
                yield from executor.map(self._page, itertools.repeat(call), numbers)
        for number in itertools.count(end):
            yield self._page(call, number)

    def _page(self, call: ListCall, number: int) -> Page:
        """Read one page."""
        contract = self._platform.contract
        form = {**call.params, "page": str(number), "size": str(contract.page_size)}
        name = "hosts" if call == contract.hosts else "users"
        setting = f"platform.contract.{name}.path" if number <= 1 else None
        envelope = self._envelope("POST", call.path, form, repeatable=True, setting=setting)
        if envelope.refusal:
            return Page(number, refusal=envelope.refusal)
        match envelope.payload:
            case {"size": int() as size, "data": list() as items} if all(
                isinstance(item, dict) for item in items
            ):
                ids = self._ids_of(items, call.path)
                return Page(number, size, ids, self._fields_of(items, ids, call.path))
        raise ProtocolError(
            f"{self.where} answered {call.path} with no list of items and their number; check the paths in "
            "platform.contract"
        )

    # Parts of items

    def _ids_of(self, items: Sequence[Fields], path: str) -> list[str]:
        ids = [item.get("id") for item in items]
        for place, one in enumerate(ids):
            if one == "" or type(one) not in {str, int}:
                raise ProtocolError(
                    f"{self.where} answered {path} with an item that has no usable id, a text or a whole "
                    f"number: {repr(one)[:80]}, item {place + 1} of its page, after {ids[:place][-1:]}"
                )
        return list(map(str, ids))

    def _fields_of(self, items: Sequence[Fields], ids: Sequence[str], path: str) -> Sequence[Fields]:
        """What the items hold where their fields are to be; in single odd ones that is no object."""
        fields_in = self._platform.contract.fields_in
        values = items
        for part in filter(None, fields_in.split(".")):
            values = [one.get(part) if isinstance(one, dict) else None for one in values]
        if values and not any(isinstance(one, dict) for one in values):
            raise ProtocolError(
                f"{self.where} answered {path} with an item ({ids[0]}) without fields in "
                f"{fields_in!r}; check platform.contract.fields_in"
            )
        return values
