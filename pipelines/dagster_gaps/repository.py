"""The repository of all instances: each is defined when Dagster asks for it, and a run is for one of them.

Not needed once `Definitions` are made lazily, by job, and a code location may say which assets go into one
run.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from threading import RLock
from typing import Any

import dagster as dg

from assets_defs.run import shown_resources
from ownership.names import printable
from pipelines.jobs import LOGGERS, MAINTENANCE, maintenance_job, maintenance_schedule, run_executor
from resources.settings import BrokenInstance, Instance, command_line, slug_of_part

# Dagster's own names for the repository of a `Definitions` and for the job of all assets that it adds. Under
# another name of the repository it would take each schedule for a new one, which is off.
REPOSITORY = "__repository__"
ALL_ASSETS = "__ASSET_JOB"


class InstanceRepository(dg.RepositoryData):
    """The definitions of the instances, each made when Dagster asks for it.

    A run's process loads the code location again and asks for one job, so only its instance is defined. The
    code server asks for everything; each instance has its own graph of assets, because Dagster searches the
    whole graph for each job.
    """

    def __init__(
        self,
        instances: Iterable[Instance | BrokenInstance],
        define: Callable[[Instance | BrokenInstance], dg.Definitions],
    ) -> None:
        self.instances = {instance.slug: instance for instance in instances}
        self._define = define
        self._defined: dict[str, dg.RepositoryDefinition] = {}
        self.is_served = False  # by a code server; a run's process asks for its own job alone
        self._lock = RLock()  # web server and daemon ask the code server at the same time

    def _repository_of(self, slug: str) -> dg.RepositoryDefinition:
        with self._lock:
            if slug not in self._defined:
                self._defined[slug] = self._define(self.instances[slug]).get_repository_def()
            return self._defined[slug]

    def _repositories(self) -> list[dg.RepositoryDefinition]:
        return [self._repository_of(slug) for slug in self.instances]

    def get_job(self, job_name: str) -> dg.JobDefinition:
        """Return a job by its name; defines only its instance."""
        if job_name == MAINTENANCE:
            return maintenance_job()
        slug = slug_of_part(job_name)
        if slug in self.instances and self._repository_of(slug).has_job(job_name):
            return self._repository_of(slug).get_job(job_name)
        if job_name == ALL_ASSETS:
            return self._all_assets_job
        raise dg.DagsterInvariantViolationError(
            f"There is no job {job_name}; if its instance file was renamed or removed, reload the code "
            "location"
        )

    @cached_property
    def _all_assets_job(self) -> dg.JobDefinition:
        return dg.Definitions(
            assets=list(dict.fromkeys(self.get_assets_defs_by_key().values())),
            asset_checks=list(dict.fromkeys(self.get_asset_checks_defs_by_key().values())),
            executor=run_executor(),
            loggers=LOGGERS,
        ).resolve_job_def(ALL_ASSETS)

    # What Dagster asks for. The resources of an instance go with its own assets and jobs.

    def get_all_jobs(self) -> Sequence[dg.JobDefinition]:  # noqa: D102
        self.is_served = True
        repositories = self._repositories()
        own = [one.get_job(name) for one in repositories for name in one.job_names if name != ALL_ASSETS]
        own.append(maintenance_job())
        return [*own, self._all_assets_job] if self.get_assets_defs_by_key() else own

    def get_all_schedules(self) -> Sequence[dg.ScheduleDefinition]:  # noqa: D102
        own = [schedule for one in self._repositories() for schedule in one.schedule_defs]
        return [*own, maintenance_schedule()]

    def get_all_sensors(self) -> Sequence[dg.SensorDefinition]:  # noqa: D102
        return [sensor for one in self._repositories() for sensor in one.sensor_defs]

    def get_assets_defs_by_key(self) -> Mapping[dg.AssetKey, dg.AssetsDefinition]:  # noqa: D102
        return {key: asset for one in self._repositories() for key, asset in one.assets_defs_by_key.items()}

    def get_asset_checks_defs_by_key(self) -> Mapping[dg.AssetCheckKey, dg.AssetChecksDefinition]:  # noqa: D102
        repositories = self._repositories()
        return {key: check for one in repositories for key, check in one.asset_checks_defs_by_key.items()}

    def get_top_level_resources(self) -> Mapping[str, dg.ResourceDefinition]:  # noqa: D102
        return {key: shown for one in self.instances.values() for key, shown in shown_resources(one).items()}

    def get_env_vars_by_top_level_resource(self) -> Mapping[str, Any]:  # noqa: D102
        return {}


class OneInstancePerRun(dg.RepositoryDefinition):
    """The repository as Dagster serves it; refuses runs of several instances, which would count as one's."""

    def __init__(self, instances: InstanceRepository) -> None:
        super().__init__(REPOSITORY, repository_data=instances)
        self._data, self._instances = instances, instances.instances

    def get_maybe_subset_job_def(self, job_name: str, *selected: Any, **selection: Any) -> dg.JobDefinition:
        """Return the part of a job that a run executes, at launch and in the run's process.

        That process first asks for the whole job, which would fail in its first step
        (`assets_defs.run_request.executed_steps`). It reads the instance files again: a job whose file is
        invalid by then has other steps and options, and Dagster's error about these would not say why.

        Raises:
            dagster.DagsterInvalidSubsetError: the selection has assets or checks of several instances, or
                a file is invalid that may be this instance's.
        """
        found = self._instances.get(slug_of_part(job_name))
        if isinstance(found, BrokenInstance) and not self._data.is_served:
            raise dg.DagsterInvalidSubsetError(found.message)
        try:
            job = super().get_maybe_subset_job_def(job_name, *selected, **selection)
        except dg.DagsterError as error:
            invalid = [one.message for one in self._instances.values() if isinstance(one, BrokenInstance)]
            raise dg.DagsterInvalidSubsetError("\n".join([*invalid, str(error)])) from error
        slugs = sorted({slug_of_part(node.name) for node in job.nodes})
        if any((*selected, *selection.values())) and len(slugs) > 1:
            chosen: list[Any] = [self._instances[slug] for slug in slugs]  # broken ones have no assets
            names = " and ".join(printable(instance.name) for instance in chosen)
            commands = "\n".join(f"    {command_line(instance, 'run')}" for instance in chosen)
            raise dg.DagsterInvalidSubsetError(
                f"The selection has assets of {names}, and a run is for one instance. Nothing was started. "
                f"Select the assets of one instance and launch a run for each, or on a terminal:\n{commands}"
            )
        return job
