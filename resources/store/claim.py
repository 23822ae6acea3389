"""Whose tables lie in a folder, and in which format: the first instance to come has them.

The record lies with the tables, so that another machine finds it, and this one after it was rebuilt.
"""

import json
from pathlib import Path
from typing import Any

from upath import UPath

from resources.errors import ConfigurationError
from resources.formats import own_format, require_known_format
from resources.store.files import create, replacing

CLAIM = ".instance"


def claim(folder: UPath, *, name: str | None, target: str | None, readers: int | None = None) -> None:
    """Record whose tables these are, where that has a name; refuse those that `require_own` refuses.

    Without a target that of a later call is recorded.
    """
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
    """Refuse tables of another instance with the same slug or a newer program; return what is recorded."""
    place = folder / CLAIM
    try:
        recorded = json.loads(place.read_bytes())
        owner, other = recorded["name"], recorded["target"]
        require_known_format(recorded["format"], recorded["version"], str(folder))
    except (FileNotFoundError, PermissionError):  # the first run has yet to come; an analyst looks
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{place} is damaged; delete it, and run the instance whose tables these are: it is written again"
        ) from error
    if name not in {None, owner} or (name and other and target not in {None, other}):
        raise ConfigurationError(
            f"The tables in {folder} are those of the instance {owner!r}, which writes to {other}. The name "
            f"{name!r}, which writes to {target}, would share them: give it another name, or a home of its "
            f"own; if it is the same one, renamed or moved, delete {place}: no earlier run can be undone then"
        )
    return recorded
