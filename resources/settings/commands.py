"""Find the instance file for what people write, and write commands that can be pasted."""

import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from resources.errors import ConfigurationError
from resources.settings.environment import instances_folder
from resources.settings.files import instance_files, instance_or_complaint
from resources.settings.models import Instance
from resources.settings.names import slug_of

PROGRAM = "asset-owners"


def instance_path(given: str | None = None) -> Path:
    """Return the instance file for a path, or for a name, a slug or a file of the instances folder.

    Where nothing is given, it is the only file of the folder.
    """
    if given is not None and Path(given).is_file():
        return Path(given)
    folder = instances_folder()
    files = {file: instance_or_complaint(file) for file in instance_files(folder)}
    matching = [
        file for file, found in files.items() if given is None or given.casefold() in _names(file, found)
    ]
    if len(matching) == 1:
        return matching[0]
    if given and not matching and (Path(given).suffix in {".yaml", ".yml"} or len(Path(given).parts) > 1):
        return Path(given)  # reading it says what is wrong
    if not files:
        init = command_line(None, "init")
        raise ConfigurationError(f"--instance: there is no instance file in {folder}; write one: {init}")
    what = "name the instance" if given is None else f"there is no instance {given!r}"
    if matching and given is not None:
        files, what = dict.fromkeys(matching), f"{given!r} fits several; name its file"
    raise ConfigurationError(f"--instance: {what}. {folder} has {', '.join(file.name for file in files)}")


def _names(file: Path, found: Instance | str) -> set[str]:
    """Return all names of an instance of the folder, in lower case."""
    own = set() if isinstance(found, str) else {found.name, found.slug}
    return {name.casefold() for name in own | {file.name, file.stem, slug_of(file.stem)}}


def command_line(instance: Instance | None, command: str, *arguments: str) -> str:
    """Write a command of ours so that it can be pasted into a shell as it stands."""
    words = [command]
    if instance:
        file = instance.file
        in_folder = file is None or file.resolve().parent == instances_folder().resolve()
        words += ["--instance", instance.slug if in_folder else str(file)]
    return shlex.join([_program(), *words, *arguments])


def host_arguments(hosts: Iterable[str]) -> list[str]:
    """Return the options that name these hosts."""
    # Without a blank before it, @ begins the name of a file.
    return [part for host in hosts for part in ("--host", f" {host}" if host[0] == "@" else host)]


def _program() -> str:
    """Return our program as the reader's shell finds it: its name, or its path if it was called by that."""
    called, found = Path(sys.argv[0]), shutil.which(PROGRAM)
    if called.name != PROGRAM or not called.exists() or (found and Path(found).samefile(called)):
        return PROGRAM
    return str(called)
