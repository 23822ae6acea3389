"""The asset-inventory service: general calls by its convention, lists, reads and writes of single assets.

Any endpoint is reached with `get`, `post`, `upload` and `download` (rules 5.1). What the specification does
not show about the others comes from the instance's contract (rules 5.5). Sessions are told in
`session`, what an answer means in `envelope`.
"""

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import polars as pl
import tenacity

from ownership.names import printable
from resources.errors import ConfigurationError, ProtocolError, ServiceError, TransientError
from resources.http import Answer, Transport, retrying
from resources.inventory.envelope import Envelope, envelope_members, open_envelope
from resources.inventory.session import InventorySession
from resources.settings import ItemCall, ListCall, Platform

READINGS = 3  # of a list that changes while it is read

T = TypeVar("T")
Fields = Mapping[str, Any]
Keep = Callable[[Sequence[str], Sequence[Fields]], T]
"""Called with the ids and the fields of the assets of a page, gives what to keep of them."""
OnProgress = Callable[[int, int], None]
"""Called with how many of how many are done."""


def no_progress(_done: int, _total: int) -> None:
    """Progress that nobody wants to hear of."""


@dataclass(frozen=True)
class Page(Generic[T]):
    """One page of a list: its number, the size announced for the whole list, and what is kept of it."""

    number: int
    size: int
    ids: list[str]
    kept: T


ReadPage = Callable[[int], Page[T] | ServiceError]
"""Reads the page of a number; a refusal is returned."""


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

    @property
    def where(self) -> str:
        """The service and its address, to begin a message with."""
        return self._transport.where

    @property
    def needed_code(self) -> bool:
        """Whether a log-in so far needed a verification code."""
        return self._session.needed_code

    # Calls by the convention (rules 5.1)

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
            repeatable: try again after a TransientError or an expired session; only for calls that change
                nothing.
            tenant: add the tenant parameter.

        Raises:
            SessionExpiredError: the session had ended, and the call is not repeatable.
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
        """Send files as multipart/form-data, sent once; as `post` with what is not repeatable.

        Args:
            path: the endpoint, from /api/v1 on.
            files: form field to file name, content and media type.
            form: further fields.
            tenant: add the tenant parameter.
        """
        return _payload(self._envelope("POST", path, form, tenant=tenant, repeatable=False, files=files))

    def download(self, path: str, params: Mapping[str, str] | None = None, *, tenant: bool = True) -> bytes:
        """Read a raw body that comes without an envelope; its failures come with one (rules 5.1)."""

        def raw(answer: Answer) -> bytes:
            if answer.status >= 400 or envelope_members(answer.body):
                _payload(self._opened(answer, path, tenant=tenant))
            return answer.body

        return self._exchange("GET", path, params, raw, tenant=tenant, repeatable=True)

    def _envelope(
        self,
        method: str,
        path: str,
        values: Mapping[str, str] | None,
        *,
        tenant: bool,
        on_404: str | None = None,
        **arguments: Any,
    ) -> Envelope:
        def envelope(answer: Answer) -> Envelope:
            return self._opened(answer, path, tenant=tenant, on_404=on_404)

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

        return retrying(self._sleep)(once) if repeatable else once()

    def _opened(self, answer: Answer, path: str, *, tenant: bool, on_404: str | None = None) -> Envelope:
        tenant_id = self._platform.tenant_id if tenant else None
        return open_envelope(answer, path, self._transport, tenant=tenant_id, on_404=on_404)

    # Lists (rules 5.4)

    def list_assets(
        self, call: ListCall, rows_of: Keep[pl.DataFrame], *, on_progress: OnProgress = no_progress
    ) -> pl.DataFrame:
        """Read a list to its end, several pages at a time.

        It is complete when as many distinct ids were read as the service announces. A list that changes
        meanwhile is read again, up to `READINGS` times.

        Args:
            call: the list, usually `contract.hosts` or `contract.users`.
            rows_of: makes each asset of a page into a row, in the thread that read it; beside rows and ids
                nothing is held. A column that only some pages have is null in the others.
            on_progress: called after each page with how many assets of how many are read.

        Returns:
            A row for each asset, in the order of the service; of an id that came twice, the last one.

        Raises:
            ProtocolError: the list cannot be completed, an item has no id, or none of a page has fields where
                `contract.fields_in` says they are.
        """
        again = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_IncompleteError),
            stop=tenacity.stop_after_attempt(READINGS),
            reraise=True,
        )
        return again(self._read_list, call, rows_of, on_progress)

    def first_page(self, call: ListCall) -> Page[Sequence[Fields]]:
        """Find the first page of a list: number 0 or 1, whichever the service begins with.

        A service that begins with 1 refuses page 0, gives it empty, or gives page 1 instead.

        Raises:
            ProtocolError: it is empty and the list is not; else as from `list_assets`.
        """
        return self._begin(lambda number: self._page(call, number, lambda _, assets: assets), call.path)[0]

    def _begin(self, read: ReadPage[T], path: str) -> tuple[Page[T], list[Page[T] | ServiceError]]:
        """Find the first page; the second comes with it where telling the first took both."""
        zero = read(0)
        if isinstance(zero, Page) and len(zero.ids) == zero.size:
            return zero, []
        one = read(1)
        repeated = isinstance(zero, Page) and isinstance(one, Page) and zero.ids == one.ids
        if isinstance(zero, Page) and zero.ids and not repeated:
            return zero, [one]
        if isinstance(one, ServiceError):
            raise one
        if one.size and not one.ids:
            raise _IncompleteError(
                f"{self._transport.where} announced {one.size} items for {path} and gave 0 on the first page"
            )
        return one, []

    def _read_list(
        self, call: ListCall, rows_of: Keep[pl.DataFrame], on_progress: OnProgress
    ) -> pl.DataFrame:
        def page_of(number: int) -> Page[pl.DataFrame] | ServiceError:
            return self._page(call, number, rows_of)

        first, second = self._begin(page_of, call.path)
        frames: list[pl.DataFrame] = []
        ids: list[str] = []
        distinct: set[str] = set()
        reason = ""
        with contextlib.closing(self._pages(page_of, first, second)) as pages:
            for page in pages:
                if isinstance(page, ServiceError):
                    reason = f" and then a refusal ({page})"
                    break
                known = len(distinct)
                frames.append(page.kept)
                ids += page.ids
                distinct.update(page.ids)
                on_progress(len(distinct), first.size)
                if page.size != first.size:
                    reason = f" and then announced {page.size}"
                    break
                if len(distinct) == first.size:
                    read = pl.concat(frames, how="diagonal")
                    if len(ids) == len(distinct):
                        return read
                    last = {asset_id: row for row, asset_id in enumerate(ids)}
                    return read[list(last.values())]
                if len(distinct) == known or len(distinct) > first.size:
                    break
        raise _IncompleteError(
            f"{self._transport.where} announced {first.size} items for {call.path}, gave {len(distinct)} "
            f"distinct ones{reason}; a list with gaps is not used (last of {READINGS} readings)"
        )

    def _pages(
        self, read: ReadPage[T], first: Page[T], second: list[Page[T] | ServiceError]
    ) -> Generator[Page[T] | ServiceError]:
        """Yield the known pages and those after them, without an end; a refused one as its refusal."""
        yield first
        yield from second
        expected = -(-first.size // max(len(first.ids), 1))  # the service may give fewer than asked for
        begin = first.number + 1 + len(second)
        after = range(begin, max(begin, first.number + expected))
        yield from self._ahead(read, after)
        yield from map(read, itertools.count(after.stop))

    def _ahead(self, read: ReadPage[T], numbers: Iterable[int]) -> Generator[Page[T] | ServiceError]:
        """Yield pages in order, while the next ones are on their way; their number is bounded."""
        executor = ThreadPoolExecutor(self._connections)
        running: deque[Future[Page[T] | ServiceError]] = deque()
        try:
            for number in numbers:
                running.append(executor.submit(read, number))
                if len(running) >= 2 * self._connections:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            executor.shutdown(cancel_futures=True)

    def _page(self, call: ListCall, number: int, keep: Keep[T]) -> Page[T] | ServiceError:
        """Read one page; a refusal is returned, for it may only mean that there is no such page."""
        form = {**call.params, "page": str(number), "size": str(self._platform.contract.page_size)}
        setting = "hosts" if call == self._platform.contract.hosts else "users"
        # Of a later page it may only mean that there is no such page.
        on_404 = f"correct platform.contract.{setting}.path" if number <= 1 else None
        envelope = self._envelope("POST", call.path, form, tenant=True, repeatable=True, on_404=on_404)
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
        ids = self._ids_of(items, call.path)
        return Page(number, size, ids, keep(ids, self._fields_of(items, ids, call.path)))

    # Single assets

    def read(self, asset_id: str) -> Mapping[str, Any]:
        """Read the fields of one asset.

        Raises:
            ConfigurationError: the contract has no `read`.
        """
        call = self._platform.contract.read
        if call is None:
            raise ConfigurationError("platform.contract.read: is null, so no single asset can be read")
        item = self._of_one_asset(call, asset_id, {}, "read", repeatable=True)
        if not isinstance(item, dict) or self._ids_of([item], call.path) != [asset_id]:
            raise ProtocolError(
                f"{self._transport.where} answered {call.path} with something else than asset {asset_id}; "
                "check path and id_param of platform.contract.read"
            )
        return self._fields_of([item], [asset_id], call.path)[0]

    def update(
        self,
        asset_id: str,
        fields: Mapping[str, str],
        *,
        right_before: Callable[[], None] = lambda: None,
    ) -> None:
        """Set fields of one asset in one request, which is sent once.

        Args:
            asset_id: the asset.
            fields: its fields to set; an empty text clears one.
            right_before: called when the connection stands and the request is about to go out; what it raises
                keeps the request from being sent.

        Raises:
            SessionExpiredError: the session had ended; the service says that it did nothing.
            TransientError: the service may have applied it or not, also when its answer made no sense; where
                `not_done` is true it has not.
        """
        call = self._platform.contract.update
        try:
            self._of_one_asset(call, asset_id, fields, "update", repeatable=False, right_before=right_before)
        except ProtocolError as error:
            raise TransientError(str(error)) from error

    def _of_one_asset(
        self,
        call: ItemCall,
        asset_id: str,
        fields: Mapping[str, str],
        name: str,
        *,
        repeatable: bool,
        **arguments: Any,
    ) -> Any:
        """What the service says to a call of the contract about one asset; `name` is the call's there."""
        form = {**fields, call.id_param: asset_id}
        on_404 = f"if this happens for every asset, correct platform.contract.{name}.path"
        return _payload(
            self._envelope(
                "POST", call.path, form, tenant=True, repeatable=repeatable, on_404=on_404, **arguments
            )
        )

    # Parts of items

    def _ids_of(self, items: Sequence[Fields], path: str) -> list[str]:
        ids = [item.get("id") for item in items]
        if "" in ids or set(map(type, ids)) - {str, int}:
            place = next(place for place, one in enumerate(ids) if one == "" or type(one) not in {str, int})
            after = f", after the one with id {printable(str(ids[place - 1]))}" if place else ""
            raise ProtocolError(
                f"{self._transport.where} answered {path} with an item that has no usable id, a text or a "
                f"whole number: {printable(repr(ids[place]))[:80]}, item {place + 1} of its page{after}"
            )
        return list(map(str, ids))

    def _fields_of(self, items: Sequence[Fields], ids: Sequence[str], path: str) -> Sequence[Fields]:
        """What the items hold where their fields are to be; in single odd ones that is no object."""
        fields_in = self._platform.contract.fields_in
        values = items
        for part in filter(None, fields_in.split(".")):
            values = [one.get(part) if isinstance(one, dict) else None for one in values]
        if values and dict not in set(map(type, values)):
            raise ProtocolError(
                f"{self._transport.where} answered {path} with an item ({ids[0]}) without fields in "
                f"{fields_in!r}; check platform.contract.fields_in"
            )
        return values


class _IncompleteError(ProtocolError):
    """A reading of a list that did not give all of it; the next one may."""


def _payload(envelope: Envelope) -> Any:
    if envelope.refusal:
        raise envelope.refusal
    return envelope.payload
