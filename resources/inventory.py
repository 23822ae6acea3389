"""The asset-inventory service: general calls by its convention, lists, reads and writes of single assets.

Any endpoint is reached with `get`, `post`, `upload` and `download` (§4). What the specification does not show
about the others comes from the instance's contract (readings §5.5). Sessions are told in `inventory_session`,
what an answer means in `envelope`.
"""

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import polars as pl
import tenacity

from resources.envelope import Envelope, envelope_members, open_envelope
from resources.errors import ConfigurationError, ProtocolError, ServiceError, TransientError
from resources.http import Answer, Transport, retrying
from resources.inventory_session import InventorySession
from resources.settings import ListCall, Platform

READINGS = 3  # of a list that changes while it is read
BATCH = 5_000  # assets, at least, that are made into rows at once: many small frames cost more than few

T = TypeVar("T")
Fields = Mapping[str, Any]
FrameOf = Callable[[Sequence[str], Sequence[Fields]], pl.DataFrame]
"""Makes assets, given as ids and fields, into as many rows in that order."""
OnProgress = Callable[[int, int], None]
"""Told how many of how many are done."""


def untold(_done: int, _total: int) -> None:
    """Progress that nobody wants to hear of."""


@dataclass(frozen=True)
class Page:
    """One page of a list: its number, the size announced for the whole list, and its assets."""

    number: int
    size: int
    ids: list[str]
    assets: list[Fields]


class InventoryClient:
    """The inventory service of one instance, a context manager; safe to use from several threads.

    Opening it resolves the secrets; the first call logs in. Every call raises, beside what it names itself:

        AuthenticationError: password, code or session refused, or the certificate is not trusted.
        PermissionDeniedError, NotFoundError: HTTP status 403 or 404.
        ValidationError: values refused, with field-level detail where the service gave any.
        ServiceError: another handled failure; its message says what the service said.
        TransientError: time-out, broken connection, 429 or 5xx; calls that may be repeated were.
        ProtocolError: the answer is not what the convention promises.

    Args:
        platform: address, account, tenant and contract.
        connections: requests in flight while a list is read, and connections kept open.
        clock: seconds since the epoch, for verification codes.
        sleep: waits between tries and for the next verification code.

    Raises:
        ConfigurationError: a secret is not set or not usable.
    """

    def __init__(
        self,
        platform: Platform,
        *,
        connections: int = 8,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._platform = platform
        self._connections = connections
        self._sleep = sleep
        self._transport = Transport(
            service="inventory service",
            section="platform.",
            url=platform.url,
            ignore_ssl=platform.ignore_ssl,
            ca_file=platform.ca_file,
            connections=connections,
        )
        self._session = InventorySession(platform, self._transport, clock=clock, sleep=sleep)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    # Calls by the convention (§4)

    def get(self, path: str, params: Mapping[str, str] | None = None, *, tenant: bool = True) -> Any:
        """Read with a query string.

        Args:
            path: the endpoint, from /api/v1 on.
            params: its parameters.
            tenant: add the tenant parameter.

        Returns:
            What lies under `data`, or else what lies beside status and message.
        """
        return _payload(self._envelope("GET", path, params, tenant=tenant, repeatable=True))

    def post(
        self, path: str, form: Mapping[str, str] | None = None, *, repeatable: bool, tenant: bool = True
    ) -> Any:
        """Send a form; as `get`.

        Args:
            path: the endpoint, from /api/v1 on.
            form: its fields.
            repeatable: try again after a TransientError; only for calls that change nothing.
            tenant: add the tenant parameter.
        """
        return _payload(self._envelope("POST", path, form, tenant=tenant, repeatable=repeatable))

    def upload(
        self,
        path: str,
        files: Mapping[str, tuple[str, bytes, str]],
        form: Mapping[str, str] | None = None,
        *,
        tenant: bool = True,
    ) -> Any:
        """Send files as multipart/form-data, tried once; as `get`.

        Args:
            path: the endpoint, from /api/v1 on.
            files: form field to file name, content and media type.
            form: further fields.
            tenant: add the tenant parameter.
        """
        return _payload(self._envelope("POST", path, form, tenant=tenant, repeatable=False, files=files))

    def download(self, path: str, params: Mapping[str, str] | None = None, *, tenant: bool = True) -> bytes:
        """Read a raw body that comes without an envelope; its failures come with one (§2)."""

        def raw(answer: Answer) -> bytes:
            if answer.status >= 400 or envelope_members(answer.body):
                _payload(self._opened(answer, path, tenant=tenant))
            return answer.body

        return self._exchange("GET", path, params, raw, tenant=tenant, repeatable=True)

    def _envelope(
        self, method: str, path: str, values: Mapping[str, str] | None, *, tenant: bool, **arguments: Any
    ) -> Envelope:
        def envelope(answer: Answer) -> Envelope:
            return self._opened(answer, path, tenant=tenant)

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
            return read(self._session.exchange(method, path, **arguments))

        return retrying(self._sleep)(once) if repeatable else once()

    def _opened(self, answer: Answer, path: str, *, tenant: bool) -> Envelope:
        tenant_id = self._platform.tenant_id if tenant else None
        return open_envelope(answer, path, self._transport, tenant=tenant_id)

    # Lists (readings §5.4)

    def list_assets(
        self, call: ListCall, frame_of: FrameOf, *, on_progress: OnProgress = untold
    ) -> pl.DataFrame:
        """Read a list to its end, several pages at a time.

        It is complete when as many distinct ids were read as the service announces. A list that changes
        meanwhile is read again, up to `READINGS` times.

        Args:
            call: the list, usually `contract.hosts` or `contract.users`.
            frame_of: given the assets in batches of pages; nothing but its rows is held.
            on_progress: told after each page how many assets of how many are read.

        Returns:
            A row for each asset, in the order of the service; of an id that came twice, the last one.

        Raises:
            ProtocolError: the list cannot be completed, an item has no id, or no fields where
                `contract.fields_in` says they are.
        """
        again = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_IncompleteError),
            stop=tenacity.stop_after_attempt(READINGS),
            reraise=True,
        )
        return again(self._read_list, call, frame_of, on_progress)

    def first_page(self, call: ListCall) -> Page:
        """Find the first page of a list: number 0 or 1, whichever the service begins with.

        A service that begins with 1 refuses page 0, gives it empty, or gives page 1 instead.

        Raises:
            ProtocolError: it is empty and the list is not; else as from `list_assets`.
        """
        return self._begin(call)[0]

    def _begin(self, call: ListCall) -> tuple[Page, list[Page | ServiceError]]:
        """Find the first page; the second comes with it where telling the first took both."""
        zero = self._page(call, 0)
        if isinstance(zero, Page) and len(zero.ids) == zero.size:
            return zero, []
        one = self._page(call, 1)
        repeated = isinstance(zero, Page) and isinstance(one, Page) and zero.ids == one.ids
        if isinstance(zero, Page) and zero.ids and not repeated:
            return zero, [one]
        if isinstance(one, ServiceError):
            raise one
        if one.size and not one.ids:
            raise _IncompleteError(
                f"{self._transport.where} announced {one.size} items for {call.path} and gave 0 on the "
                "first page"
            )
        return one, []

    def _read_list(self, call: ListCall, frame_of: FrameOf, on_progress: OnProgress) -> pl.DataFrame:
        first, second = self._begin(call)
        rows = _Rows(frame_of)
        reason = ""
        with contextlib.closing(self._pages(call, first, second)) as pages:
            for page in pages:
                if isinstance(page, ServiceError):
                    reason = f" and then a refusal ({page})"
                    break
                known = rows.distinct
                rows.add(page)
                on_progress(rows.distinct, first.size)
                if page.size != first.size:
                    reason = f" and then announced {page.size}"
                    break
                if rows.distinct == first.size:
                    return rows.frame()
                if rows.distinct == known or rows.distinct > first.size:
                    break
        raise _IncompleteError(
            f"{self._transport.where} announced {first.size} items for {call.path}, gave {rows.distinct} "
            f"distinct ones{reason}; a list with gaps is not used (last of {READINGS} readings)"
        )

    def _pages(
        self, call: ListCall, first: Page, second: list[Page | ServiceError]
    ) -> Generator[Page | ServiceError]:
        """Yield the known pages and those after them, without an end; a refused one as its refusal."""
        yield first
        yield from second
        expected = -(-first.size // max(len(first.ids), 1))  # the service may give fewer than asked for
        begin = first.number + 1 + len(second)
        after = range(begin, max(begin, first.number + expected))
        yield from self._ahead(call, after)
        yield from (self._page(call, number) for number in itertools.count(after.stop))

    def _ahead(self, call: ListCall, numbers: Iterable[int]) -> Generator[Page | ServiceError]:
        """Yield pages in order, while the next ones are on their way; their number is bounded."""
        executor = ThreadPoolExecutor(self._connections)
        running: deque[Future[Page | ServiceError]] = deque()
        try:
            for number in numbers:
                running.append(executor.submit(self._page, call, number))
                if len(running) >= 2 * self._connections:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            executor.shutdown(cancel_futures=True)

    def _page(self, call: ListCall, number: int) -> Page | ServiceError:
        """Read one page; a refusal is returned, for it may only mean that there is no such page."""
        form = {**call.params, "page": str(number), "size": str(self._platform.contract.page_size)}
        envelope = self._envelope("POST", call.path, form, tenant=True, repeatable=True)
        if envelope.refusal:
            return envelope.refusal
        payload = envelope.payload
        size, items = (
            (payload.get("size"), payload.get("data")) if isinstance(payload, dict) else (None, None)
        )
        if not isinstance(size, int) or not isinstance(items, list) or set(map(type, items)) - {dict}:
            raise ProtocolError(
                f"{self._transport.where} answered {call.path} with no list of items and their number; "
                "check the paths in platform.contract"
            )
        ids = [self._id_of(item, call.path) for item in items]
        return Page(number, size, ids, [self._fields_of(item, call.path) for item in items])

    # Single assets

    def read(self, asset_id: str) -> Mapping[str, Any]:
        """Read the fields of one asset.

        Raises:
            ConfigurationError: the contract has no `read`.
        """
        call = self._platform.contract.read
        if call is None:
            raise ConfigurationError("platform.contract.read: is null, so no single asset can be read")
        item = self.post(call.path, {call.id_param: asset_id}, repeatable=True)
        if not isinstance(item, dict) or self._id_of(item, call.path) != asset_id:
            raise ProtocolError(
                f"{self._transport.where} answered {call.path} with something else than asset {asset_id}; "
                "check path and id_param of platform.contract.read"
            )
        return self._fields_of(item, call.path)

    def update(self, asset_id: str, fields: Mapping[str, str]) -> None:
        """Set fields of one asset in one request, which is sent once (after an expired session, once more).

        Raises:
            TransientError: the service may have applied it or not, also when its answer made no sense.
        """
        call = self._platform.contract.update
        try:
            self.post(call.path, {**fields, call.id_param: asset_id}, repeatable=False)
        except ProtocolError as error:
            raise TransientError(str(error)) from error

    # Parts of an answer

    def _id_of(self, item: Mapping[str, Any], path: str) -> str:
        asset_id = item.get("id")
        if type(asset_id) not in (str, int) or asset_id == "":
            raise ProtocolError(f"{self._transport.where} answered {path} with an item that has no usable id")
        return str(asset_id)

    def _fields_of(self, item: Mapping[str, Any], path: str) -> Mapping[str, Any]:
        fields: Any = item
        for part in filter(None, self._platform.contract.fields_in.split(".")):
            fields = fields.get(part) if isinstance(fields, dict) else None
        if not isinstance(fields, dict):
            raise ProtocolError(
                f"{self._transport.where} answered {path} with an item ({self._id_of(item, path)}) without "
                f"fields in {self._platform.contract.fields_in!r}; check platform.contract.fields_in"
            )
        return fields


class _Rows:
    """Rows of the assets of a list, made as its pages come."""

    def __init__(self, frame_of: FrameOf) -> None:
        self._frame_of = frame_of
        self._frames: list[pl.DataFrame] = []
        self._ids: list[str] = []
        self._assets: list[Fields] = []
        self._read = 0
        self._last: dict[str, int] = {}  # id to the row that holds it, in the order of the service

    @property
    def distinct(self) -> int:
        """How many ids were read."""
        return len(self._last)

    def add(self, page: Page) -> None:
        self._last.update(zip(page.ids, itertools.count(self._read), strict=False))
        self._read += len(page.ids)
        self._ids += page.ids
        self._assets += page.assets
        if len(self._ids) >= BATCH:
            self._make()

    def frame(self) -> pl.DataFrame:
        self._make()
        return pl.concat(self._frames)[list(self._last.values())]

    def _make(self) -> None:
        self._frames.append(self._frame_of(self._ids, self._assets))
        self._ids, self._assets = [], []


class _IncompleteError(ProtocolError):
    """A reading of a list that did not give all of it; the next one may."""


def _payload(envelope: Envelope) -> Any:
    if envelope.refusal:
        raise envelope.refusal
    return envelope.payload
