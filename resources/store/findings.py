"""What a try of the object store finds in which ASSET_OWNERS_TABLES puts the tables."""

import uuid
from collections.abc import Iterator

from upath import UPath

from resources.findings import Finding, attempt


def store_findings(location: UPath) -> Iterator[Finding]:
    """Store an object where the tables lie, read it and delete it, as a run does with theirs.

    Args:
        location: what holds the folders of all instances.
    """
    what, stored = "ASSET_OWNERS_TABLES", location / f".check-{uuid.uuid4()}"

    def try_all() -> None:
        location.fs.pipe_file(stored.path, b"asset-owners check")
        location.fs.cat_file(stored.path)
        location.fs.rm(stored.path)

    yield from [*attempt(what, try_all)] or [
        Finding("ok", what, "an object could be stored, read and deleted")
    ]
