"""Prepared tables, copied for each test: to prepare them takes longer than most tests."""

import shutil

import pytest

from resources.store.tables import Tables


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Tables and a copy of their home; the catalogue holds whole paths, so the home stays in its place."""
    folder = tmp_path_factory.mktemp("prepared")
    tables = Tables(folder / "home", "corp")
    tables.prepare()
    return tables, shutil.copytree(tables.home, folder / "copy")


@pytest.fixture
def tables(prepared):
    tables, copy = prepared
    shutil.rmtree(tables.home)
    shutil.copytree(copy, tables.home)
    return Tables(tables.home, "corp")


@pytest.fixture
def home(tables):
    return tables.home
