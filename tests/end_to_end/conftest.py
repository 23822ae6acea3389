"""Both services for all end-to-end tests; each test has a home folder of its own and a fresh inventory."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from sandbox.company import MAPPING, generate
from tests.end_to_end.stand import COMPANY_INDEX, SMALL_INDEX, TODAY, documents, small_company


@pytest.fixture(scope="session")
def loaded_engine(engine):
    """The engine with the small company's documents."""
    engine.load(SMALL_INDEX, MAPPING, documents(small_company()))
    return engine


@pytest.fixture(scope="session")
def company(engine):
    """The demo's company, whose documents are in the engine's index."""
    made_up = generate(today=TODAY)
    engine.load(COMPANY_INDEX, MAPPING, made_up.documents())
    return made_up


@pytest.fixture
def recorded_stand(open_stand, tmp_path, monkeypatch):
    """The small company, with runs recorded where the UI looks."""
    return open_stand(tmp_path, monkeypatch)


@pytest.fixture
def engine_stand(open_stand, tmp_path, monkeypatch, loaded_engine):
    """The same with the search engine, which runs in processes of their own can reach."""
    return open_stand(tmp_path, monkeypatch, loaded_engine)


@pytest.fixture
def stand(recorded_stand, unrecorded):  # noqa: ARG001
    """The small company, whose runs nobody looks at later."""
    return recorded_stand


@pytest.fixture
def picture(tmp_path):
    """Keeps what a page shows; `SCREENSHOTS=DIR` tells where, else it ends with the tests' other files."""
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)

    def taken(page, name, **options):
        file = folder / f"{name}.png"
        expect(page.get_by_text("Loading...")).to_have_count(0)
        page.screenshot(path=file, animations="disabled", **options)

    return taken
