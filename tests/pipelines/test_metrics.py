import pytest
from prometheus_client import CollectorRegistry

from pipelines.cli.metrics import Metrics


@pytest.fixture
def folder(instance_file, tmp_path, monkeypatch):
    """The instances folder, with the file of one instance that nobody has run."""
    folder = tmp_path / "instances"
    folder.mkdir()
    instance_file.rename(folder / "head-office.yaml")
    monkeypatch.setenv("ASSET_OWNERS_INSTANCES", str(folder))
    return folder


def test_the_number_of_instance_files_is_told_the_broken_ones_too(call, folder):
    (folder / "broken.yaml").write_text("name: [")
    status, printed, _ = call("metrics")
    assert status == 0
    assert "\nasset_owners_instances 2.0\n" in printed
    assert 'asset_owners_instance_readable{slug="broken"} 0.0' in printed


def test_a_folder_that_goes_away_shows_while_the_metrics_are_served(folder):
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Metrics(None))
    assert registry.get_sample_value("asset_owners_instances") == 1
    folder.rename(folder.with_name("elsewhere"))
    assert registry.get_sample_value("asset_owners_instances") == 0


@pytest.mark.parametrize("wrong", ["nonsense", "127.0.0.1:65536", ":-1"])
@pytest.mark.usefixtures("folder")
def test_an_address_that_is_none_is_refused(call, wrong):
    status, _, said = call("metrics", "--listen", wrong)
    assert (status, said.startswith("asset-owners: --listen: ")) == (2, True)
