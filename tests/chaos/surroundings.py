"""What happens around one run: at the inventory service, on the way there, and to the run itself."""

import threading
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import dagster as dg
from starlette.responses import HTMLResponse, JSONResponse

from sandbox.inventory import BrokenOff, InventoryState
from sandbox.inventory_api import ASSETS_GET as READ
from sandbox.inventory_api import ASSETS_LIST, envelope
from sandbox.inventory_api import ASSETS_UPDATE as UPDATE
from sandbox.inventory_state import Origin

NAME, LOCATION = "search_agent_name", "location"
HOST_NAMES = {f"h-{number}": f"pc-{number}" for number in range(1, 6)}
"""What the hosts are called at first."""

MADE_ANEW = "made anew"
"""Told in an owner's place: the host is no more, and another one, nobody's, has got its id."""

RETRY_AFTER = {"Retry-After": "1"}
TURNED_AWAY = {
    "refused": (200,),
    "asks to wait": (429,),
    "only asks to wait": (429,),
    "asks to wait so long": (429, {"Retry-After": "3"}),
    "asks to wait with 503": (503, RETRY_AFTER),
    "503, done later": (503, RETRY_AFTER),
}
"""Status and headers of the answer to a write that the service does not do, or not yet."""

LASTING = {"outage", "only says yes", "only asks to wait", "clears the rest", "sets the owner only"}
TROUBLES = [
    *("session expires", "done, then 401", "lost", "answer lost", "bad gateway", "says yes", "only says yes"),
    *("done, then 429", "done, then 503", "outage", *TURNED_AWAY, "clears the rest", "sets the owner only"),
]
"""What may happen to a request; lasting trouble happens to all that follow in the run."""


@dataclass(frozen=True)
class Conditions:
    """What happens to a run: when it dies, what happens to its requests, who takes which host meanwhile.

    A request is told by its path and its number among those of this path. A visit is when somebody sets a
    host's owner between its listing and our reading. Between that reading and our write there is no promise:
    the service has no conditional write. A follower comes once the service has handled our write or turned
    it away: before we hear of it, or late where the write is late. `terminated_at` is the number of the write
    at which somebody terminates the run in Dagster.
    """

    last_instant: int | None = None
    troubles: dict[tuple[str, int], str] = field(default_factory=dict)
    visits: dict[str, Any] = field(default_factory=dict)
    followers: dict[str, Any] = field(default_factory=dict)
    terminated_at: int | None = None


CALM = Conditions()


class Surroundings:
    """Hooks of the inventory service: what happens around one run, from the moment on when its plan stands.

    With `finish_before_lists`, a list of the assets shows what the service had put off.
    Afterwards `doubtful` has the hosts whose write got no answer, or none that is true, `lied` those of
    which the service said yes and set nothing, `ignored` those of which it set the owner only, and `cleared`
    those that lost what was not sent.
    """

    def __init__(self, state: InventoryState, conditions: Conditions) -> None:
        self._state = state
        self._troubles = conditions.troubles
        self._lasting: str | None = None
        self._visits = dict(conditions.visits)
        self._followers = dict(conditions.followers)
        self._late: list[dict[str, str]] = []
        self._numbers: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._terminated_at = conditions.terminated_at
        self.planned = False
        self.finish_before_lists = False
        self.doubtful: set[str] = set()
        self.lied: set[str] = set()
        self.ignored: set[str] = set()
        self.cleared: set[str] = set()
        self.befell: Counter[str] = Counter()

    @property
    def outage(self) -> bool:
        return self._lasting == "outage"

    @property
    def terminated(self) -> bool:
        return self._terminated_at is not None and self._numbers[UPDATE] >= self._terminated_at

    def before(self, request):
        trouble = None
        path = request.url.path
        with self._lock:
            if self.planned:
                self._numbers[path] += 1
                trouble = self._troubles.get((path, self._numbers[path]))
                self._lasting = self._lasting or (trouble if trouble in LASTING else None)
                trouble = trouble or self._lasting
                self._let_in(request)
                if path == UPDATE or (path == ASSETS_LIST and self.finish_before_lists):
                    self._write_late()
                    self.befell.update([trouble] if trouble else [])
                    if trouble == "503, done later":
                        self._late.append(dict(request.state.parameters))
        request.state.trouble = trouble
        if trouble == "session expires":
            self._state.accounts.expire_sessions()
        if trouble in {"lost", "outage"}:
            return BrokenOff()
        return self._in_place_of_a_write(request, trouble) if path == UPDATE else None

    def _in_place_of_a_write(self, request, trouble):
        if trouble in {"says yes", "only says yes"}:
            with self._lock:
                self.lied.add(request.state.parameters["id"])
            return JSONResponse(envelope())
        if trouble == "sets the owner only" and "asset_owner" in request.state.parameters:
            form = dict(request.state.parameters)
            with self._lock:
                self.ignored.add(form["id"])
                self._update({name: form[name] for name in ("id", "asset_owner")})
            return JSONResponse(envelope())
        if trouble in TURNED_AWAY:
            return JSONResponse(envelope(status=False, message="Not now."), *TURNED_AWAY[trouble])
        return None

    def finish(self):
        """The run is over, and the service does what it had put off."""
        with self._lock:
            self._write_late()

    def _write_late(self):
        while self._late:
            self._update(self._late.pop())

    def _update(self, form):
        values = {name: form[name] or None for name in form.keys() - {"id", "tenant_id"}}
        self._state.update_asset(
            form["id"], values, Origin("proxy", UPDATE, f"proxy-{len(self._state.journal())}")
        )
        self._follow(form["id"])

    def _follow(self, host_id):
        if host_id in self._followers:
            change(self._state, host_id, self._followers.pop(host_id))

    def _let_in(self, request):
        path, one = request.url.path, request.state.parameters.get("id")
        for host_id in list(self._visits):
            if path == ASSETS_LIST or (path == READ and host_id == one):
                change(self._state, host_id, self._visits.pop(host_id))

    def after(self, request, response):
        trouble = request.state.trouble
        told = None
        if trouble == "answer lost":
            told = BrokenOff()
        elif trouble == "bad gateway":
            told = HTMLResponse("<h1>Bad Gateway</h1>", 502)
        elif (trouble or "").startswith("done, then "):
            told = JSONResponse(envelope(status=False, message="Not now."), int(trouble[-3:]), RETRY_AFTER)
        if self.planned and request.url.path == UPDATE:
            host_id = request.state.parameters.get("id")
            with self._lock:
                if told or isinstance(response, BrokenOff) or response.status_code in {401, 429, 503}:
                    self.doubtful.add(host_id)
                elif trouble == "clears the rest" and self._state._assets[host_id][2].pop(LOCATION, None):
                    self.cleared.add(host_id)
                if trouble not in {"503, done later", "sets the owner only"}:
                    self._follow(host_id)
        return told


class Dagster:
    """What a run asks Dagster of itself, and it counts as canceled once somebody has terminated it."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings

    def get_run_by_id(self, _):
        ended = self._surroundings.terminated
        status = dg.DagsterRunStatus.CANCELED if ended else dg.DagsterRunStatus.STARTED
        return SimpleNamespace(status=status, tags={}, parent_run_id=None)

    def all_logs(self, *_, **__):
        return []

    get_run_step_stats = all_logs

    def add_run_tags(self, *_):
        pass


def change(state, host_id, owner):
    """Set a host's owner by hand, or make the host anew."""
    values = {"asset_owner": owner}
    if owner == MADE_ANEW:
        values = {NAME: "pc-9", "asset_owner": None, "department": None, "criticality": None}
    state.update_asset(host_id, values, Origin("person"))
