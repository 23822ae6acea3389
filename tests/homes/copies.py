"""Copies of the stored homes, as an upgrade finds them: their catalogue is of the older version, too."""

import json
import shutil
from pathlib import Path

import duckdb

from resources.store.catalogue import catalogue_path
from tests.homes.make import ANY_PLACE

HOMES = Path(__file__).parent


def copy_home(stored: Path, folder: Path) -> None:
    """Copy the home of a stored version to a folder that does not exist yet."""
    # Not with the times of the checkout: what is older than `keep` says is deleted.
    shutil.copytree(stored / "home", folder, copy_function=shutil.copy)
    views = folder / ".warehouse-views.json"
    views.write_text(views.read_text(encoding="utf-8").replace(ANY_PLACE, str(folder)), encoding="utf-8")
    with duckdb.connect(catalogue_path(folder)) as catalogue:
        for statement in json.loads(views.read_text(encoding="utf-8")):
            catalogue.execute(statement)
