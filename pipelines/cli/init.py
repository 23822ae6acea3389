"""`asset-owners init`: an instance file to fill in, with every setting explained."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import yaml

from ownership.names import fits_any, printable
from pipelines.cli.errors import require_file
from pipelines.cli.stored import tables_of
from resources.errors import ConfigurationError
from resources.settings import Instance, command_line, instances_folder, load_instances

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "resources" / "settings" / "example.yaml"
SCHEMA = ROOT / "docs" / "instance.schema.json"


def init(path: Path) -> None:
    """Write the file, `-` for standard output; never over an existing one.

    Where tuning has found accounts to leave out of the instances of this home, the file excludes them, too.
    """
    require_file("FILE", path)
    check = command_line(None, "check", "--instance", "FILE" if path == Path("-") else str(path))
    text = EXAMPLE.read_text(encoding="utf-8")
    excluded = yaml.safe_load(text)["rules"]["exclude_users"]
    lines = [f"    - {json.dumps(user):<17} # {printable(why)}\n" for user, why in _suggested_users(excluded)]
    text = re.sub("(exclude_users:\n(?: +- .*\n)+)", lambda found: found[0] + "".join(lines), text)
    if SCHEMA.exists():
        text = text.replace("../../docs/instance.schema.json", SCHEMA.as_uri(), 1)
    else:  # installed without the documents
        text = re.sub("# yaml-language-server.*\n#\n", "", text, count=1)
    text = text.replace("asset-owners check --instance FILE", check, 1)
    if path == Path("-"):
        print(text, end="")
        return
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ConfigurationError(f"{path}: the file exists and is left as it is; name another one") from error
    except OSError as error:
        raise ConfigurationError(f"{path}: the file cannot be written: {error}") from error
    print(f"{path} is written. Fill in names, addresses and where the secrets lie, then try it:\n    {check}")


def _suggested_users(excluded: list[str]) -> Iterator[tuple[str, str]]:
    """Yield user names that tuning suggests to exclude for the home's instances, each with the reason."""
    known = pl.col("value").pipe(fits_any, tuple(excluded))
    told = set()
    for instance in load_instances(instances_folder()):
        if isinstance(instance, Instance):
            rows = tables_of(instance).of_tuning("suggestions").filter(~known, setting="rules.exclude_users")
            for user, reason in rows.select("value", "reason").iter_rows():
                if user not in told:
                    yield user, f"suggested for {instance.name}: {reason}"
                told.add(user)
