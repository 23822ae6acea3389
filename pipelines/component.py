"""An instance as a component of another Dagster project: `type: asset_owners.AssetOwnersComponent`.

`asset_owners` is the name under which other projects import it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import dagster as dg

from resources.settings import load_instance


@dataclass
class AssetOwnersComponent(dg.Component, dg.Resolvable):
    """Fills in the owners of hosts from Windows logon events, for one instance.

    It brings the instance's assets, which begin with the slug of its `name`, their checks, the jobs that
    scan, plan, apply, undo and tune, and schedules. Put assets of your own behind `[SLUG,
    "owner_decisions"]`. A subclass with `services` opens another `source` of logons or `inventory` than ours.

    Attributes:
        instance_file: The instance file; a relative path begins at the folder of defs.yaml.
    """

    instance_file: str
    services: ClassVar[Mapping[str, Any]] = {}

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Define the instance; executor and loggers are the project's own."""
        from pipelines.definitions import build_definitions  # noqa: PLC0415  (lists of components do not wait)
        from resources.store.tables import tables_of  # noqa: PLC0415

        instance = load_instance(context.path / self.instance_file)
        ours = build_definitions(instance, tables_of(instance), **self.services)
        parts = ("assets", "asset_checks", "jobs", "schedules", "sensors")
        return dg.Definitions(**{part: getattr(ours, part) for part in parts})
