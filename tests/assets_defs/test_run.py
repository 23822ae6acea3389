import dagster as dg
import pytest

from assets_defs.run import as_dagster_failure, failure, failure_message
from resources.errors import AssetOwnersError, ServiceError


def test_a_name_in_a_failure_makes_no_line_of_its_own():
    with pytest.raises(dg.DagsterUserCodeExecutionError) as raised, as_dagster_failure():
        raise ServiceError("no host \n12:00 all is well\x1b[2J")
    assert str(raised.value) == "no host \\n12:00 all is well\\x1b[2J"


@pytest.mark.parametrize("message", ["", "The disk is full", "index: 'none': no such index"])
def test_a_failure_tells_its_message_as_it_was_given(message):
    @dg.op
    def fails() -> None:
        raise failure(message) from AssetOwnersError()

    @dg.job
    def job() -> None:
        fails()

    (event,) = job.execute_in_process(raise_on_error=False).get_step_failure_events()
    assert failure_message(event.step_failure_data.error) == message
    shown = event.step_failure_data.error_display_string
    assert 'File "' not in shown, "Dagster's UI shows the stack of an error, and of its cause"


def test_an_error_that_no_operator_can_mend_keeps_its_trace():
    with pytest.raises(ZeroDivisionError), as_dagster_failure():
        _ = 1 / 0
