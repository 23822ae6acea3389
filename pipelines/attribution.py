"""Where a `dagster.yaml` from an earlier version finds its run coordinator."""

from pipelines.dagster_gaps.run_coordinator import AttributedRunCoordinator  # noqa: F401
