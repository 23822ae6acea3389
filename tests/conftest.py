"""Parts that several rooms' tests share."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from sandbox.engine import Engine


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """One running engine for all tests: give each test's index a name of its own."""
    # pytest's own folders are closed to user nobody, as whom the engine runs when root starts it.
    with tempfile.TemporaryDirectory(prefix="engine-") as folder, Engine(Path(folder)) as running:
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One headless browser for all tests, which calls nobody by itself: open a context for each test."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no browser is installed; on Debian: apt-get install chromium fonts-dejavu-core")
    quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync")
    with sync_playwright() as playwright:
        # Without a sandbox of its own, because the browser refuses to have one when root starts it.
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", *quiet])
        yield running
        running.close()
