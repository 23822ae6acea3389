"""How much a command says beside its result."""

import logging

import dagster as dg
import pytest

from pipelines.console import console
from pipelines.log_lines import LOGGER


@pytest.mark.parametrize(
    ("words", "level"),
    [
        (["-q", "docs"], logging.ERROR),
        (["docs", "--quiet"], logging.ERROR),
        (["sandbox", "demo", "-v"], logging.DEBUG),
    ],
)
def test_quiet_and_verbose_go_before_and_behind_each_command(call, monkeypatch, words, level):
    found = []
    for command in ("pipelines.cli.docs.docs", "sandbox.commands.demo"):
        monkeypatch.setattr(command, lambda **_: found.append(console(dg.build_init_logger_context()).level))
    assert call(*words)[0] == 0
    assert (found, logging.getLogger(LOGGER).level) == ([level], logging.NOTSET)
