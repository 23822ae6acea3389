"""Instance files: read, checked as a whole, with messages for their author."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from resources.errors import ConfigurationError
from resources.settings.models import Instance
from resources.settings.names import MAX_NAME, RESERVED_SLUGS, is_slug, slug_of
from resources.settings.yaml_file import plain_value, read_section


@dataclass(frozen=True)
class BrokenInstance:
    """An instance file that cannot be used, with the message for its author.

    `slug` is made from the file's name, for the instance's own may be what is wrong, and is nobody else's.
    """

    path: Path
    message: str
    slug: str


def named(instance: Instance | BrokenInstance, part: str) -> str:
    """Name a part of an instance where Dagster keeps the parts of all instances side by side.

    No slug holds two underscores in a row, so no part of one instance is called like another instance, or
    like a part of it.
    """
    return f"{instance.slug}__{part}"


def slug_of_part(name: str) -> str:
    """The slug of the instance that a part is named after; of a job that is no part, its own name."""
    return name.partition("__")[0]


def load_instance(path: Path) -> Instance:
    """Read and check one instance file."""
    instance = read_section(path, Instance)
    if not is_slug(instance.slug):
        raise ConfigurationError(
            f"{path}: name: {instance.name!r} gives no usable identifier; use letters or digits, {MAX_NAME} "
            "at most, and no word that DuckDB, Dagster or Python keeps for itself, such as main or class"
        )
    if instance.rules.logon_type_weights and instance.logon_type_field is None:
        raise ConfigurationError(
            f"{path}: rules.logon_type_weights: needs logon_type_field; name there the document field that "
            "holds the kind of logon, such as winlog.event_data.LogonType, or take the weights out"
        )
    _require_separate_fields(path, instance)
    return instance


def _require_separate_fields(path: Path, instance: Instance) -> None:
    """Refuse two settings that name one field: a write would put one value in the place of another."""
    contract, section = instance.platform.contract, "platform.contract"
    names = {
        f"{section}.update.id_param": contract.update.id_param,
        f"{section}.tenant_param": contract.tenant_param,
        "platform_hostname_field": instance.platform_hostname_field,
        "platform_user_field": instance.platform_user_field,
        f"{section}.enrich_fields.user_department": contract.enrich_fields.user_department,
        f"{section}.enrich_fields.criticality": contract.enrich_fields.criticality,
    }
    named_by: dict[str, str] = {}
    for setting, name in names.items():
        if name and named_by.setdefault(name, setting) != setting:
            raise ConfigurationError(
                f"{path}: {setting}: {name!r} is named by {named_by[name]}, too; a write needs each by itself"
            )


def load_instances(
    folder: Path, only: Callable[[str], bool] | None = None
) -> list[Instance | BrokenInstance]:
    """Read every `*.yaml` and `*.yml` of a folder; a broken file does not hide the others.

    Files whose names give the same slug are all broken. Where `only` does not want a slug, the name alone is
    read.
    """
    files = [path for path in instance_files(folder) if only is None or only(_written_slug(path))]
    loaded = {path: instance_or_complaint(path) for path in files}
    slugs = Counter(found.slug for found in loaded.values() if isinstance(found, Instance))
    for path, found in loaded.items():
        if isinstance(found, Instance) and slugs[found.slug] > 1:
            loaded[path] = (
                f"{path}: name: {found.name!r} gives the identifier {found.slug!r}, as does another file in "
                f"{folder}; give each instance its own name"
            )
    taken = {found.slug for found in loaded.values() if isinstance(found, Instance)}
    return [
        BrokenInstance(path, found, _free_slug(path, taken)) if isinstance(found, str) else found
        for path, found in loaded.items()
    ]


def _written_slug(path: Path) -> str:
    """The slug that a file gives, by its line of the name where possible; a broken file's own name."""
    try:
        return slug_of(plain_value(path, "name") or load_instance(path).name)
    except ConfigurationError:
        return slug_of(path.stem)


def instance_files(folder: Path) -> list[Path]:
    """The files of a folder that are read as instance files, sorted."""
    return sorted(path for ending in ("*.yaml", "*.yml") for path in folder.glob(ending))


def instance_or_broken(path: Path) -> Instance | BrokenInstance:
    """What an instance file holds; a broken one under the slug that its line of the name still gives."""
    found = instance_or_complaint(path)
    return BrokenInstance(path, found, _written_slug(path)) if isinstance(found, str) else found


def instance_or_complaint(path: Path) -> Instance | str:
    """What an instance file holds, or the message for its author."""
    try:
        return load_instance(path)
    except ConfigurationError as error:
        return str(error)


def _free_slug(path: Path, taken: set[str]) -> str:
    """An identifier from the file's name that is not taken; takes it."""
    slug = slug_of(path.stem)[: MAX_NAME // 2].strip("_") or "unnamed"
    while slug in taken | RESERVED_SLUGS:
        slug += "_broken"
    taken.add(slug)
    return slug
