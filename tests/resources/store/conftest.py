"""Prepared tables, copied for each test: to prepare them takes longer than most tests."""

import shutil

import pytest

from resources.store.tables import Tables


@pytest.fixture(scope="session")
def put_back(tmp_path_factory):
    """Makes a home what a copy of it was, whose name is given; the catalogue holds its path, so it stays."""
    folder = tmp_path_factory.mktemp("prepared")
    tables = Tables(folder / "home", "corp")
    tables.prepare()
    shutil.copytree(tables.home, folder / "prepared")

    def put_back(copy):
        shutil.rmtree(tables.home)
        shutil.copytree(folder / copy, tables.home)
        return Tables(tables.home, "corp")

    return put_back


@pytest.fixture
def tables(put_back):
    return put_back("prepared")


@pytest.fixture
def home(tables):
    return tables.home
