"""The instances as Dagster asks for them: all of them for its UI, and the one whose job runs for a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

import dagster as dg

from resources.settings import BrokenInstance, Instance, slug_of_part

# Dagster's own names for the repository of a `Definitions` and for the job of all assets that it adds. Under
# another name of the repository it would take each schedule for a new one, which is off.
REPOSITORY = "__repository__"
ALL_ASSETS = "__ASSET_JOB"


@dataclass(frozen=True)
class _Everything:
    jobs: Mapping[str, dg.JobDefinition]
    schedules: Sequence[dg.ScheduleDefinition]
    assets: Mapping[dg.AssetKey, dg.AssetsDefinition]
    checks: Mapping[dg.AssetCheckKey, dg.AssetChecksDefinition]


class Instances(dg.RepositoryData):
    """The definitions of the instances, each made by itself, when Dagster asks for it.

    A run's process loads the code location again and asks for one job: that job's instance is defined and no
    other. The code server asks for everything; the jobs of each instance are then made from its own graph of
    assets, for Dagster looks through the whole graph that a job of assets is chosen from.

    `define` defines one of them; `common` is what all jobs have in common.
    """

    def __init__(
        self,
        instances: Sequence[Instance | BrokenInstance],
        define: Callable[[Instance | BrokenInstance], dg.Definitions],
        common: dg.Definitions,
    ) -> None:
        self._instances = instances
        self._define = define
        self._common = common
        self._job_of_one = cache(self._find_job)
        self._everything: _Everything | None = None
        self._making = Lock()  # the code server is asked by webserver and daemon at once

    def get_job(self, job_name: str) -> dg.JobDefinition:
        """The job of that name; of a usable instance it is made without looking at the others."""
        if self._everything is None and (job := self._job_of_one(job_name)):
            return job
        jobs = self._all().jobs
        if job_name not in jobs:
            raise dg.DagsterInvariantViolationError(
                f"There is no job {job_name}; where its instance file was renamed or taken away, reload the "
                "code location"
            )
        return jobs[job_name]

    def _find_job(self, name: str) -> dg.JobDefinition | None:
        slug = slug_of_part(name)
        for instance in self._instances:
            if isinstance(instance, Instance) and instance.slug == slug:
                one = self._define(instance).get_repository_def()
                return one.get_job(name) if one.has_job(name) else None
        return None

    def _all(self) -> _Everything:
        with self._making:
            self._everything = self._everything or self._make_all()
            return self._everything

    def _make_all(self) -> _Everything:
        each = [self._define(instance).get_repository_def() for instance in self._instances]
        jobs = {name: one.get_job(name) for one in each for name in one.job_names if name != ALL_ASSETS}
        assets = {key: asset for one in each for key, asset in one.assets_defs_by_key.items()}
        checks = {key: check for one in each for key, check in one.asset_checks_defs_by_key.items()}
        if assets:
            both = dg.Definitions(
                assets=list(dict.fromkeys(assets.values())), asset_checks=list(dict.fromkeys(checks.values()))
            )
            jobs[ALL_ASSETS] = dg.Definitions.merge(self._common, both).resolve_job_def(ALL_ASSETS)
        return _Everything(jobs, [schedule for one in each for schedule in one.schedule_defs], assets, checks)

    # What Dagster asks for. The resources of an instance go with its own assets and jobs.

    def get_all_jobs(self) -> Sequence[dg.JobDefinition]:  # noqa: D102
        return list(self._all().jobs.values())

    def get_all_schedules(self) -> Sequence[dg.ScheduleDefinition]:  # noqa: D102
        return self._all().schedules

    def get_assets_defs_by_key(self) -> Mapping[dg.AssetKey, dg.AssetsDefinition]:  # noqa: D102
        return self._all().assets

    def get_asset_checks_defs_by_key(self) -> Mapping[dg.AssetCheckKey, dg.AssetChecksDefinition]:  # noqa: D102
        return self._all().checks

    def get_top_level_resources(self) -> Mapping[str, dg.ResourceDefinition]:  # noqa: D102
        return {}

    def get_env_vars_by_top_level_resource(self) -> Mapping[str, Any]:  # noqa: D102
        return {}
