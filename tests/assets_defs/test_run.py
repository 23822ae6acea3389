import dagster as dg
import pytest

from assets_defs.run import as_dagster_failure
from resources.errors import ServiceError


def test_a_name_in_a_failure_makes_no_line_of_its_own():
    with pytest.raises(dg.DagsterUserCodeExecutionError) as failure, as_dagster_failure():
        raise ServiceError("no host \n12:00 all is well\x1b[2J")
    assert str(failure.value) == "no host \\n12:00 all is well\\x1b[2J"


def test_an_error_that_no_operator_can_mend_keeps_its_trace():
    with pytest.raises(ZeroDivisionError), as_dagster_failure():
        _ = 1 / 0
