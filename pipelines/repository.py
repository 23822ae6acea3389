"""The instances as Dagster asks for them: all of them for its UI, and the one whose job runs for a run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import RLock
from typing import Any

import dagster as dg

from pipelines.jobs import LOGGERS, run_executor
from resources.settings import BrokenInstance, Instance, slug_of_part

# Dagster's own names for the repository of a `Definitions` and for the job of all assets that it adds. Under
# another name of the repository it would take each schedule for a new one, which is off.
REPOSITORY = "__repository__"
ALL_ASSETS = "__ASSET_JOB"


class Instances(dg.RepositoryData):
    """The definitions of the instances, each made by itself, when Dagster asks for it.

    A run's process loads the code location again and asks for one job: that job's instance is defined and no
    other. The code server asks for everything; the jobs of each instance are then made from its own graph of
    assets, for Dagster looks through the whole graph that a job of assets is chosen from.
    """

    def __init__(
        self,
        instances: Iterable[Instance | BrokenInstance],
        define: Callable[[Instance | BrokenInstance], dg.Definitions],
    ) -> None:
        self._instances = {instance.slug: instance for instance in instances}
        self._define = define
        self._made: dict[str, dg.RepositoryDefinition] = {}
        self._all_assets: dg.JobDefinition | None = None
        self._making = RLock()  # the code server is asked by webserver and daemon at once

    def _one(self, slug: str) -> dg.RepositoryDefinition:
        with self._making:
            if slug not in self._made:
                self._made[slug] = self._define(self._instances[slug]).get_repository_def()
            return self._made[slug]

    def _each(self) -> list[dg.RepositoryDefinition]:
        return [self._one(slug) for slug in self._instances]

    def get_job(self, job_name: str) -> dg.JobDefinition:
        """The job of that name; it is made without looking at other instances."""
        slug = slug_of_part(job_name)
        if slug in self._instances and self._one(slug).has_job(job_name):
            return self._one(slug).get_job(job_name)
        if job_name == ALL_ASSETS:
            return self._job_of_all_assets()
        raise dg.DagsterInvariantViolationError(
            f"There is no job {job_name}; where its instance file was renamed or taken away, reload the code "
            "location"
        )

    def _job_of_all_assets(self) -> dg.JobDefinition:
        with self._making:
            self._all_assets = self._all_assets or dg.Definitions(
                assets=list(dict.fromkeys(self.get_assets_defs_by_key().values())),
                asset_checks=list(dict.fromkeys(self.get_asset_checks_defs_by_key().values())),
                executor=run_executor(),
                loggers=LOGGERS,
            ).resolve_job_def(ALL_ASSETS)
            return self._all_assets

    # What Dagster asks for. The resources of an instance go with its own assets and jobs.

    def get_all_jobs(self) -> Sequence[dg.JobDefinition]:  # noqa: D102
        own = [one.get_job(name) for one in self._each() for name in one.job_names if name != ALL_ASSETS]
        return [*own, self._job_of_all_assets()] if self.get_assets_defs_by_key() else own

    def get_all_schedules(self) -> Sequence[dg.ScheduleDefinition]:  # noqa: D102
        return [schedule for one in self._each() for schedule in one.schedule_defs]

    def get_assets_defs_by_key(self) -> Mapping[dg.AssetKey, dg.AssetsDefinition]:  # noqa: D102
        return {key: asset for one in self._each() for key, asset in one.assets_defs_by_key.items()}

    def get_asset_checks_defs_by_key(self) -> Mapping[dg.AssetCheckKey, dg.AssetChecksDefinition]:  # noqa: D102
        return {key: check for one in self._each() for key, check in one.asset_checks_defs_by_key.items()}

    def get_top_level_resources(self) -> Mapping[str, dg.ResourceDefinition]:  # noqa: D102
        return {}

    def get_env_vars_by_top_level_resource(self) -> Mapping[str, Any]:  # noqa: D102
        return {}
