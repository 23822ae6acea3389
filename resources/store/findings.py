"""What a try finds of where a run stores: folders, and the object store of ASSET_OWNERS_TABLES."""

import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from upath import UPath

from resources.findings import Finding, attempt


def store_findings(location: UPath) -> Iterator[Finding]:
    """Store an object where the tables lie, read it and delete it, as a run does with theirs."""
    what, stored = "ASSET_OWNERS_TABLES", location / f".check-{uuid.uuid4()}"

    def try_all() -> None:
        location.fs.pipe_file(stored.path, b"asset-owners check")
        location.fs.cat_file(stored.path)
        location.fs.rm(stored.path)

    yield from [*attempt(what, try_all)] or [
        Finding("ok", what, "an object could be stored, read and deleted")
    ]


def folder_findings(what: str, folder: Path, *inner: str) -> Iterator[Finding]:
    """Try whether files can be stored in a folder and some in it, or whether these can be made.

    Nothing is left behind: neither a file nor a folder. `what` is the setting that names the folder.
    """

    def try_all() -> None:
        for each in (folder, *(folder / name for name in inner)):
            nearest = next(path for path in (each, *each.parents) if os.path.lexists(path))
            try:
                with tempfile.TemporaryFile(dir=nearest):
                    pass
            except OSError as error:
                error.filename = str(nearest)  # and not the name that the file would have had
                raise

    yield from [*attempt(what, try_all)] or [Finding("ok", what, f"files can be stored in {folder}")]
