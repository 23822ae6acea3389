"""Where a `dagster.yaml` that was written before 1.1 finds its run coordinator."""

from pipelines.dagster_gaps.run_coordinator import AttributedRunCoordinator

__all__ = ["AttributedRunCoordinator"]
