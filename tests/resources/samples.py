"""An instance for tests: name what matters, the rest is filled in."""

import os
from typing import Any

from resources.settings import Instance

TENANT = f"t-{os.getpid()}"
"""Of each worker: all processes of a machine share the lock of a tenant, and would wait for each other."""


def instance_content(**changes: Any) -> dict[str, Any]:
    """What the shortest instance file holds, with changes by key."""
    return {
        "name": "Windows logons",
        "url": "https://search.example:9200",
        "username": "owner-search",
        "password": {"env": "SEARCH_PASSWORD"},
        "sensor": "berlin-1",
        "platform": {
            "url": "https://inventory.example",
            "email": "robot@corp.example",
            "password": {"env": "INVENTORY_PASSWORD"},
            "tenant_id": TENANT,
        },
        **changes,
    }


def instance(**changes: Any) -> Instance:
    return Instance.model_validate(instance_content(**changes))
