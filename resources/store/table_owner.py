"""Which instance the tables in a folder belong to, and their format; the first run records it there."""

import json
from pathlib import Path
from typing import Any

from upath import UPath

from resources.errors import ConfigurationError
from resources.format_version import own_format, require_known_format
from resources.store.files import create, replacing

CLAIM = ".instance"


def claim(folder: UPath, *, name: str | None, target: str | None, readers: int | None = None) -> None:
    """Record that these tables are the named instance's, and its target if known; fails as `require_own`."""
    recorded = require_own(folder, name=name, target=target)
    target = recorded.get("target") or target
    number, version = own_format()
    if name is None or (recorded.get("format"), recorded.get("target")) == (number, target):
        return
    content = json.dumps({"name": name, "target": target, "format": number, "version": version}).encode()
    if recorded or isinstance(folder, Path):
        with replacing(folder / CLAIM, readers) as path:
            path.write_bytes(content)
    else:
        create(folder / CLAIM, content)
    require_own(folder, name=name, target=target)  # another machine may have come first


def require_own(folder: UPath, *, name: str | None, target: str | None) -> dict[str, Any]:
    """Return what is recorded; fails for another instance with the same slug, or a newer program."""
    place = folder / CLAIM
    try:
        recorded = json.loads(place.read_bytes())
        owner, other = recorded["name"], recorded["target"]
        require_known_format(recorded["format"], recorded["version"], str(folder))
    except (FileNotFoundError, PermissionError):  # before the first run; an analyst reads
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{place} is damaged; delete it and run the instance that owns these tables: it is written again"
        ) from error
    if name not in {None, owner} or (name and other and target not in {None, other}):
        raise ConfigurationError(
            f"The tables in {folder} belong to the instance {owner!r}, which writes to {other}. {name!r}, "
            f"which writes to {target}, would share them: give it another name or a home of its own; if it "
            f"is the same one, renamed or moved, delete {place}: earlier runs can then no longer be undone"
        )
    return recorded
