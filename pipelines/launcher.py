"""Where a `dagster.yaml` that was written before 1.1 finds its run launcher."""

from pipelines.dagster_gaps.launcher import WatchfulRunLauncher

__all__ = ["WatchfulRunLauncher"]
