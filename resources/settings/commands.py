"""Which file an instance is meant by, and commands to paste, as people and messages write them."""

import shlex
import shutil
import sys
from pathlib import Path

from resources.errors import ConfigurationError
from resources.settings.environment import instances_folder
from resources.settings.files import instance_files, instance_or_complaint
from resources.settings.models import Instance
from resources.settings.names import slug_of

PROGRAM = "asset-owners"


def instance_path(given: str | None = None) -> Path:
    """Return the instance file that is meant: a path, or a name, a slug or a file of the instances folder.

    Where nothing is given, it is the only file of the folder.
    """
    if given is not None and Path(given).is_file():
        return Path(given)
    folder = instances_folder()
    files = {file: instance_or_complaint(file) for file in instance_files(folder)}
    meant = [
        file for file, found in files.items() if given is None or given.casefold() in _names(file, found)
    ]
    if len(meant) == 1:
        return meant[0]
    if given and not meant and (Path(given).suffix in {".yaml", ".yml"} or len(Path(given).parts) > 1):
        return Path(given)  # reading it says what is wrong
    if not files:
        init = command_line(None, "init")
        raise ConfigurationError(f"--instance: there is no instance file in {folder}; write one: {init}")
    what = "say which instance is meant" if given is None else f"there is no instance {given!r}"
    if meant and given is not None:
        files, what = dict.fromkeys(meant), f"{given!r} may mean several; say which, by its file"
    raise ConfigurationError(f"--instance: {what}. {folder} has {', '.join(file.name for file in files)}")


def _names(file: Path, found: Instance | str) -> set[str]:
    """All that an instance of the folder may be called, in lower case."""
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


def _program() -> str:
    """Our program as the reader's shell finds it: by its name, or by its path where it was called by that."""
    called, found = Path(sys.argv[0]), shutil.which(PROGRAM)
    if called.name != PROGRAM or (found and Path(found).samefile(called)):
        return PROGRAM
    return str(called)
