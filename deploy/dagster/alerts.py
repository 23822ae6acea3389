"""A code location that tells a chat of failed runs and failed checks; adapt the webhook and the checks.

Give it to Dagster's web server and daemon beside asset-owners' own code location, in the workspace file:
`- python_file: /opt/asset-owners/deploy/dagster/alerts.py`.
"""

import dagster as dg
import requests

WEBHOOK = "https://chat.corp.example/hook"
WATCHED = {"conflicts_do_not_grow", "owners_are_written_in_time", "written_owners_hold"}
"""Checks that warn and fail no run; `hosts_are_readable` and `users_are_readable` are two more."""


def tell(run: dg.DagsterRun, what: str | None) -> None:
    """Post what became of a run."""
    text = f"{run.tags.get('asset_owners/instance')}: run {run.run_id}: {what}"
    requests.post(WEBHOOK, json={"text": text}, timeout=10)


@dg.run_failure_sensor(monitor_all_code_locations=True, default_status=dg.DefaultSensorStatus.RUNNING)
def failed_runs(context: dg.RunFailureSensorContext) -> None:
    """Tell why a run failed."""
    errors = [event.step_failure_data.error for event in context.get_step_failure_events()]
    # Dagster puts the error's class before its message, which steps share that the first failure ended.
    reasons = [error.message.partition(": ")[2].strip() for error in errors if error]
    tell(
        context.dagster_run, "; ".join(dict.fromkeys(filter(None, reasons))) or context.failure_event.message
    )


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.SUCCESS,
    monitor_all_code_locations=True,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def failed_checks(context: dg.RunStatusSensorContext) -> None:
    """Tell which of the watched checks a run failed."""
    run = context.dagster_run
    for entry in context.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION):
        check = entry.get_dagster_event().asset_check_evaluation_data
        if check.check_name in WATCHED and not check.passed:
            tell(run, check.description)


defs = dg.Definitions(sensors=[failed_runs, failed_checks])
