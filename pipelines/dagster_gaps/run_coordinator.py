"""Records who starts a run in Dagster's UI behind a proxy with a log-in, as Dagster's documentation shows.

Not needed once its web server reads the user itself.
"""

import os

import dagster as dg

from assets_defs.record import BY_TAG, NAMED_TAG


class AttributedRunCoordinator(dg.QueuedRunCoordinator):
    """Dagster's queue, which tags each run with the user in the header ASSET_OWNERS_USER_HEADER."""

    def submit_run(self, context: dg.SubmitRunContext) -> dg.DagsterRun:
        """Tag the run and put it into the queue."""
        header = os.environ.get("ASSET_OWNERS_USER_HEADER")
        if header and (user := context.get_request_header(header)):
            run_id = context.dagster_run.run_id
            self._instance.add_run_tags(run_id, {BY_TAG: user, NAMED_TAG: run_id})
        return super().submit_run(context)
