"""The sandbox inventory with a small company, as the inventory client's tests see it."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

from resources.inventory.client import AssetInventory
from sandbox.inventory import Account
from tests.resources.clock import Clock
from tests.resources.samples import instance

TENANT = "t-1"
SECRET = "JBSWY3DPEHPK3PXP"
ADMIN = Account("admin@corp.example", "correct horse", roles={TENANT: "admin"})
CODED = Account("coded@corp.example", "with a code", mfa_secret=SECRET, roles={TENANT: "admin"})
USERS = [{"id": 17, "user_email": "ann@corp.example"}, {"id": "u-1", "user_email": "jörg@corp.example"}]
HOSTS = [
    {"id": f"h-{number}", "search_agent_name": f"PC-{number}", "asset_owner": None} for number in range(25)
]


def client(
    folder: Path, url: str, account: Account = ADMIN, *, clock=None, connections=8, contract=None, **rest
):
    """A client that never really sleeps; its secrets lie in files of the folder."""
    clock = clock or Clock()
    platform: dict[str, Any] = {"url": url, "email": account.email, "tenant_id": TENANT}
    for name, value in (("password", account.password), ("mfa_secret", account.mfa_secret)):
        if value is not None:
            (folder / name).write_text(value)
            platform[name] = {"file": str(folder / name)}
    platform["contract"] = contract or {}
    settings = instance(platform=platform, writes={"concurrency": connections}, **rest)
    return AssetInventory(settings, clock=clock, sleep=clock.sleep)


class Watch:
    """Counts at the server: requests by path, log-ins, rejections of each cookie."""

    def __init__(self, service, answer=None):
        self.calls: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self._answer = answer
        self._lock = threading.Lock()
        service.hooks.faults, service.hooks.after = self._before, self._after

    @property
    def log_ins(self):
        return self.calls["auth/login"]

    def _before(self, request):
        with self._lock:
            self.calls[request.url.path.removeprefix("/api/v1/")] += 1
        return self._answer(request) if self._answer else None

    def _after(self, request, response):
        with self._lock:
            if response.status_code == 401 and "session" in request.cookies:
                self.rejected[request.cookies["session"]] += 1
