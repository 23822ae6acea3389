"""An instance for tests: name what matters, the rest is filled in."""

from typing import Any

from resources.settings import Instance


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
            "tenant_id": "t-1",
        },
        **changes,
    }


def instance(**changes: Any) -> Instance:
    return Instance.model_validate(instance_content(**changes))
