"""What happens around one run: at the inventory service, on the way there, and to the run itself."""

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import HTMLResponse, JSONResponse

from sandbox.inventory import BrokenOff, InventoryState
from sandbox.inventory_api import ASSETS_LIST, envelope

READ = "/api/v1/assets/get"
UPDATE = "/api/v1/assets/update"
TROUBLES = ["session expires", "lost", "answer lost", "bad gateway", "refused", "outage"]
"""What may befall a request; an outage lasts to the end of the run."""


@dataclass(frozen=True)
class Circumstances:
    """What happens to a run: when it dies, what befalls its requests, who takes which host meanwhile.

    A request is told by its path and its number among those of this path.
    """

    last_instant: int | None = None
    troubles: dict[tuple[str, int], str] = field(default_factory=dict)
    visits: dict[str, Any] = field(default_factory=dict)


CALM = Circumstances()


class Surroundings:
    """Hooks of the inventory service: what happens around one run, from the moment on when its plan stands.

    A visit is when somebody sets a host's owner between its listing and our look at it. Between that look and
    our write there is no promise: the service has no conditional write.
    """

    def __init__(self, state: InventoryState, circumstances: Circumstances) -> None:
        self._state = state
        self._troubles = circumstances.troubles
        self._outage = False
        self._visits = dict(circumstances.visits)
        self._numbers: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.planned = False

    def before(self, request):
        trouble = None
        with self._lock:
            if self.planned:
                path = request.url.path
                self._numbers[path] += 1
                trouble = self._troubles.get((path, self._numbers[path]))
                self._outage = self._outage or trouble == "outage"
                self._let_in(request)
        request.state.trouble = trouble
        if trouble == "session expires":
            self._state.accounts.expire_sessions()
        if trouble == "lost" or self._outage:
            return BrokenOff()
        if trouble == "refused" and request.url.path == UPDATE:
            return JSONResponse(envelope(status=False, message="This host is locked."))
        return None

    def _let_in(self, request):
        if request.url.path == ASSETS_LIST:
            visited = list(self._visits)
        else:
            visited = [request.state.parameters.get("id")] if request.url.path == READ else []
        for host_id in visited:
            if host_id in self._visits:
                self._state.set_field(host_id, "asset_owner", self._visits.pop(host_id))

    def after(self, request, response):
        del response
        if request.state.trouble == "answer lost":
            return BrokenOff()
        if request.state.trouble == "bad gateway":
            return HTMLResponse("<h1>Bad Gateway</h1>", 502)
        return None
