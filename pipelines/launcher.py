"""Where a `dagster.yaml` from an earlier version finds its run launcher."""

from pipelines.dagster_gaps.launcher import WatchfulRunLauncher  # noqa: F401
