"""The instances as Dagster asks for them: all of them for its UI, and the one whose job runs for a run."""

import gc
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

import dagster as dg

from resources.settings import BrokenInstance, Instance, slug_of_part

# Dagster's own names for the repository of a `Definitions` and for the job of all assets that it adds. Under
# another name of the repository it would take each schedule for a new one, which is off.
REPOSITORY = "__repository__"
ALL_ASSETS = "__ASSET_JOB"


class Instances(dg.RepositoryData):
    """The definitions of the instances, each made by itself, when Dagster asks for it.

    A run's process loads the code location again and asks for one job. That job's instance is defined and no
    other, so that a run does not wait longer the more instances there are.

    The code server asks for everything. The jobs of each instance are made from its own graph of assets, for
    Dagster looks through the whole graph that a job of assets is chosen from.
    """

    def __init__(
        self,
        read: Callable[[str | None], Sequence[Instance | BrokenInstance]],
        define: Callable[[Instance | BrokenInstance], dg.Definitions],
        common: dg.Definitions,
    ) -> None:
        """Read and define nothing yet.

        Args:
            read: reads the instance files: all, or those alone that give a slug.
            define: defines an instance.
            common: what all jobs have in common.
        """
        self._read = read
        self._define = define
        self._common = common
        self._job_of_one = cache(self._find_job)

    def get_job(self, job_name: str) -> dg.JobDefinition:
        """The job of that name; of a usable instance it is made without looking at the others."""
        if "_jobs" not in vars(self) and (job := self._job_of_one(job_name)):
            return job
        if job_name not in self._jobs:
            raise dg.DagsterInvariantViolationError(
                f"There is no job {job_name}; where its instance file was renamed or taken away, reload the "
                "code location"
            )
        return self._jobs[job_name]

    def _find_job(self, name: str) -> dg.JobDefinition | None:
        slug = slug_of_part(name)
        for instance in self._read(slug) if slug else ():
            if isinstance(instance, Instance) and instance.slug == slug:
                one = self._define(instance).get_repository_def()
                return one.get_job(name) if one.has_job(name) else None
        return None

    @cached_property
    def _defined(self) -> Sequence[dg.Definitions]:
        with _all_stays():
            return [self._define(instance) for instance in self._read(None)]

    @cached_property
    def _jobs(self) -> Mapping[str, dg.JobDefinition]:
        with _all_stays():
            repositories = [one.get_repository_def() for one in self._defined]
            jobs = {
                name: one.get_job(name)
                for one in repositories
                for name in one.job_names
                if name != ALL_ASSETS
            }
            if assets := self.get_assets_defs_by_key():
                everything = dg.Definitions(
                    assets=list(dict.fromkeys(assets.values())),
                    asset_checks=list(dict.fromkeys(self.get_asset_checks_defs_by_key().values())),
                )
                whole = dg.Definitions.merge(self._common, everything)
                jobs[ALL_ASSETS] = whole.resolve_job_def(ALL_ASSETS)
            return jobs

    def get_all_jobs(self) -> Sequence[dg.JobDefinition]:
        """The jobs of all instances, and the one of all assets, with which the UI materializes some."""
        return list(self._jobs.values())

    @cached_property
    def _schedules(self) -> Mapping[str, dg.ScheduleDefinition]:
        every = (schedule for one in self._defined for schedule in one.get_repository_def().schedule_defs)
        return {schedule.name: schedule for schedule in every}

    def get_all_schedules(self) -> Sequence[dg.ScheduleDefinition]:
        """The schedules of all instances."""
        return list(self._schedules.values())

    def get_assets_defs_by_key(self) -> Mapping[dg.AssetKey, dg.AssetsDefinition]:
        """The tables of all instances."""
        return self._by_key("assets_defs_by_key")

    def get_asset_checks_defs_by_key(self) -> Mapping[dg.AssetCheckKey, Any]:
        """The checks of all instances."""
        return self._by_key("asset_checks_defs_by_key")

    def _by_key(self, what: str) -> dict[Any, Any]:
        return {
            key: definition
            for one in self._defined
            for key, definition in getattr(one.get_repository_def(), what).items()
        }

    def get_top_level_resources(self) -> Mapping[str, dg.ResourceDefinition]:
        """None: the resources of an instance go with its own assets and jobs."""
        return {}

    def get_env_vars_by_top_level_resource(self) -> Mapping[str, Any]:
        """None, as there are no such resources."""
        return {}


@contextmanager
def _all_stays() -> Generator[None]:
    """Keep Python from looking for garbage among a million objects that all stay, ever more at each look."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
