"""Which file an instance is meant by, and commands to paste, as people and messages write them."""

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
    """Return the instance file that is meant: a path, or a name, a slug or a file of the instances folder.

    Where nothing is given, it is the only file of the folder.
    """
    folder = instances_folder()
    if given is None:
        files = instance_files(folder)
        if len(files) == 1:
            return files[0]
        reason = f"{len(files)} instances are" if files else "there is no instance file"
        raise ConfigurationError(
            f"--instance: {reason} in {folder}; name the one that is meant, by its file, name or slug"
            f"{_known(files)}"
        )
    path = Path(given)
    if path.exists() and not path.is_dir():
        return path
    files = instance_files(folder)
    meant = [file for file in files if given in _names(file)]
    if not meant:
        meant = [file for file in files if given.casefold() in map(str.casefold, _names(file))]
    if len(meant) == 1:
        return meant[0]
    if not meant and (path.suffix in {".yaml", ".yml"} or len(path.parts) > 1):
        return path  # reading it tells what is wrong
    if meant:
        raise ConfigurationError(
            f"--instance: {given!r} may be any of {', '.join(map(str, meant))}; name the file"
        )
    raise ConfigurationError(
        f"--instance: {given!r} is no file, and no instance in {folder} has this name or slug{_known(files)}"
    )


def _names(file: Path) -> set[str]:
    """All that an instance of the folder may be called."""
    loaded = instance_or_complaint(file)
    own = set() if isinstance(loaded, str) else {loaded.name, loaded.slug}
    return own | {file.name, file.stem, slug_of(file.stem)}


def _known(files: Iterable[Path]) -> str:
    loaded = {file: instance_or_complaint(file) for file in files}
    names = [file.name if isinstance(found, str) else found.slug for file, found in loaded.items()]
    return f": {', '.join(names)}" if names else ""


def command_line(instance: Instance | None, command: str, *arguments: str) -> str:
    """Write a command of ours so that it can be pasted into a shell as it stands."""
    words = [command, *(_option(instance) if instance else ()), *arguments]
    return f"{shlex.quote(_program())} {shlex.join(words)}"


def _option(instance: Instance) -> list[str]:
    """The words that choose an instance on the command line; none for the only one in the folder."""
    if instance.file is None:
        return ["--instance", instance.slug]
    files = instance_files(instances_folder())
    if instance.file.resolve() not in [file.resolve() for file in files]:
        return ["--instance", str(instance.file)]
    if len(files) == 1:
        return []
    same = sum(instance.slug in _names(file) for file in files)
    return ["--instance", instance.slug if same == 1 else str(instance.file)]


def _program() -> str:
    """Our program as the reader's shell finds it: as it was called, or by its path."""
    called = Path(sys.argv[0])
    own = called if called.name == PROGRAM else Path(sys.executable).with_name(PROGRAM)
    found = shutil.which(PROGRAM)
    if not own.exists() or (found and Path(found).samefile(own)):
        return PROGRAM
    return str(own)
