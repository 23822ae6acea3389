"""An inventory with a JSON API."""

import json
from datetime import UTC, datetime
from urllib.parse import quote

from ownership.tables import InventoryHosts, InventoryUsers
from resources.errors import NotFoundError, ServiceError
from resources.http import Transport
from resources.inventory.adapter import Inventory
from resources.inventory.records import AssetRows, Field


class Cmdb(Inventory):
    """An inventory with GET /hosts and /users, GET and PATCH /hosts/ID."""

    how_read = how_written = "cmdb.url and cmdb.token"

    def __init__(self, url: str, token: str) -> None:
        self._transport = Transport(service="CMDB", section="cmdb.", url=url)
        self.where = self._transport.where
        self._session = self._transport.new_session()
        self._session.headers["Authorization"] = f"Bearer {token}"
        self._hosts = AssetRows(InventoryHosts, {"hostnames": Field("name"), "owner_ids": Field("owner")})
        self._users = AssetRows(InventoryUsers, {"user_email": Field("mail")})

    def __exit__(self, *_):
        self._session.close()

    def probe(self):
        self._transport.probe("GET", "/hosts")

    def hosts(self):
        return self._list("/hosts", self._hosts)

    def users(self):
        return self._list("/users", self._users)

    def host(self, host_id):
        return self._hosts.record(host_id, self._transport.retrying()(self._send, "GET", self._path(host_id)))

    def write(self, host_id, values, *, right_before):
        personal = tuple(filter(None, values.values()))
        form = {"json": dict(values), "personal": personal, "right_before": right_before}
        self._send("PATCH", self._path(host_id), **form)

    def _path(self, host_id):
        return f"/hosts/{quote(host_id, safe='')}"

    def _list(self, path, rows):
        listed_at = datetime.now(UTC)
        items = self._transport.retrying()(self._send, "GET", path)
        return rows.table([item["id"] for item in items], items).with_columns(listed_at=listed_at)

    def _send(self, method, path, **arguments):
        answer = self._transport.send(self._session, method, path, **arguments)
        self._transport.raise_if_transient(answer, path)
        if answer.status == 404:
            raise NotFoundError(f"{self.where} has no {path}")
        if answer.status != 200:
            raise ServiceError(f"{self.where} refused {path}; check cmdb.token: {answer.excerpt}")
        return json.loads(answer.body)
