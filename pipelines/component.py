"""An instance as a component of another Dagster project: `type: asset_owners.AssetOwnersComponent`.

Its `attributes` are an instance file. `asset_owners` is the name under which other projects import it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent
from typing import Any, Self

import dagster as dg
from dagster.components import Scaffolder, ScaffoldRequest
from pydantic import BaseModel, GetJsonSchemaHandler, RootModel
from pydantic_core import CoreSchema

from resources.errors import ConfigurationError
from resources.settings import Instance, load_instance
from resources.settings.files import checked_instance, instance_or_complaint

FILE = "defs.yaml"
EXAMPLE = Path(__file__).parents[1] / "resources" / "settings" / "example.yaml"


class InstanceAttributes(RootModel[dict[str, Any]]):
    """The attributes as Dagster takes them: checked by nothing, described by the schema of an instance file.

    `load_instance` checks them, for its messages name the nearest key and quote no secret in the wrong place.
    """

    @classmethod
    def __get_pydantic_json_schema__(cls, _: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of an instance file."""
        return handler(Instance.__pydantic_core_schema__)


class InstanceScaffolder(Scaffolder):
    """Writes a defs.yaml to fill in, with every setting explained."""

    def scaffold(self, request: ScaffoldRequest) -> None:
        """Write the file; `dg scaffold defs` calls this, and has made sure that there is none."""
        file = request.target_path / FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        text = EXAMPLE.read_text(encoding="utf-8").replace("--instance FILE", f"--instance {file}", 1)
        attributes = indent(text.partition("\n#\n")[2], "  ")  # without the line that names a schema
        file.write_text(f"type: {request.type_name}\nattributes:\n{attributes}", encoding="utf-8")


_FILES: dict[str, set[Path]] = {}
"""The files that this process has loaded, by the slug of their instance."""


def _require_own_name(instance: Instance, file: Path) -> None:
    """Fail if another defs.yaml of the project has this instance's slug, which names assets and jobs."""
    files = _FILES.setdefault(instance.slug, set())
    for other in sorted(files - {file}):
        if other.is_file() and _project_of(other) == _project_of(file) and _slug_now(other) == instance.slug:
            raise ConfigurationError(
                f"{file}: name: {instance.name!r} gives the identifier {instance.slug!r}, as does {other}; "
                "give each instance its own name, or delete one of the two files"
            )
    files.add(file)


def _project_of(file: Path) -> Path | None:
    return next((folder for folder in file.parents if (folder / "pyproject.toml").exists()), None)


def _slug_now(file: Path) -> str | None:
    found = instance_or_complaint(file)
    return None if isinstance(found, str) else found.slug


@dg.scaffold_with(InstanceScaffolder)
@dataclass
class AssetOwnersComponent(dg.Component):
    """Fills in the owners of hosts from Windows logon events, for one instance.

    Its attributes are those of an instance file. It brings the instance's assets, which begin with the
    slug of its `name`, their checks, the jobs that scan, apply, undo and tune, and schedules. Put assets of
    your own behind `[SLUG, "owner_decisions"]`. In Python: `AssetOwnersComponent(load_instance(path))`;
    `services` are functions that open another `source` of logons or `inventory` than ours.
    """

    instance: Instance
    services: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """Return what describes the attributes."""
        return InstanceAttributes

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """Return the component of a defs.yaml, read as an instance file is: tenant 0042 stays 0042.

        Raises:
            ConfigurationError: the attributes are invalid, hold templates, or have another file's name.
        """
        file = Path(context.path) / FILE
        content = attributes.root if isinstance(attributes, InstanceAttributes) else {}
        if "{{" in str(content):
            raise ConfigurationError(
                f"{file}: templates such as {{{{ env.NAME }}}} are not filled in here, because "
                "`asset-owners --instance` reads the file, too; write the value, or {env: NAME} for a secret"
                r". In a query write \{\{ for {{ itself, or \u007b\u007b in query DSL"
            )
        instance = load_instance(file) if file.is_file() else checked_instance(content, file)
        _require_own_name(instance, file)
        return cls(instance)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002
        """Define the instance; executor and loggers are the project's own."""
        from pipelines.definitions import build_definitions  # noqa: PLC0415  (lists of components do not wait)
        from resources.store.tables import tables_of  # noqa: PLC0415

        ours = build_definitions(self.instance, tables_of(self.instance), **self.services)
        parts = ("assets", "asset_checks", "jobs", "schedules", "sensors")
        return dg.Definitions(**{part: getattr(ours, part) for part in parts})
