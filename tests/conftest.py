"""Parts that several rooms' tests share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.engine import Engine


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """One running engine for all tests: give each test's index a name of its own."""
    # pytest's own folders are closed to user nobody, as whom the engine runs when root starts it.
    with tempfile.TemporaryDirectory(prefix="engine-") as folder, Engine(Path(folder)) as running:
        yield running
