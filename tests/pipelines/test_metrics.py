"""`asset-owners metrics` where there is little to tell; what it tells of runs is in `tests/end_to_end`."""

import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests
from prometheus_client import CollectorRegistry

from pipelines.cli.metrics import Metrics
from tests.end_to_end.webserver import answers, eventually, free_port, started


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
    status, told, _ = call("metrics")
    assert status == 0
    assert "\nasset_owners_instances 2.0\n" in told
    assert 'asset_owners_instance_readable{slug="broken"} 0.0' in told


def test_a_folder_that_goes_away_shows_while_the_metrics_are_served(folder):
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Metrics(None))
    assert registry.get_sample_value("asset_owners_instances") == 1
    folder.rename(folder.with_name("elsewhere"))
    assert registry.get_sample_value("asset_owners_instances") == 0


@pytest.mark.parametrize("named", ["", "nowhere", "empty"])
def test_where_there_is_no_instance_it_ends_with_2(call, tmp_path, monkeypatch, named):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ASSET_OWNERS_INSTANCES", named and str(tmp_path / named))
    (tmp_path / "empty").mkdir()
    status, told, said = call("metrics")
    assert (status, told, "ASSET_OWNERS_INSTANCES" in said) == (2, "", True)


@pytest.mark.parametrize("wrong", ["nonsense", "127.0.0.1:", "localhost:http", "127.0.0.1:65536", ":-1"])
@pytest.mark.usefixtures("folder")
def test_an_address_that_is_none_is_refused(call, wrong):
    status, _, said = call("metrics", "--listen", wrong)
    assert (status, said.startswith("asset-owners: --listen: ")) == (2, True)


@pytest.mark.slow
@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no [::1]")
@pytest.mark.usefixtures("folder")
def test_requests_that_never_end_keep_nobody_from_the_metrics(tmp_path):
    port = free_port()
    address = f"[::1]:{port}"
    command = ("asset-owners", "metrics", "--listen", address)
    with started(*command, log=tmp_path / "log") as process, ExitStack() as held:
        eventually(lambda: answers(("::1", port)))
        for _ in range(60):
            held.enter_context(socket.create_connection(("::1", port))).sendall(b"GET /metrics HTTP/1.1\r\n")
        time.sleep(1)
        assert len(list(Path(f"/proc/{process.pid}/task").iterdir())) < 40
        assert "asset_owners_instances 1.0" in requests.get(f"http://{address}/metrics", timeout=30).text
