import pytest

from pipelines.definitions import build_definitions
from resources.store.tables import Tables
from tests.resources.samples import instance as sample


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    definitions = build_definitions(sample(), Tables(tmp_path_factory.mktemp("home"), sample().slug))
    return {spec.key.path[-1]: spec for spec in definitions.resolve_all_asset_specs()}


def test_every_asset_says_what_it_is_and_whose_it_is(specs):
    for spec in specs.values():
        assert spec.description
        assert spec.owners == ["team:asset-management"]
        assert all(column.description for column in spec.metadata["dagster/column_schema"].columns)
