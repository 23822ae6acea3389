"""`asset-owners metrics` where there is little to tell; what it tells of runs is in `tests/end_to_end`."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

ASSET_OWNERS = Path(sys.executable).with_name("asset-owners")


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
    assert 'asset_owners_instance_readable{instance="broken"} 0.0' in told


@pytest.mark.parametrize("named", ["", "nowhere", "empty"])
def test_where_there_is_no_instance_it_says_so_and_fails(call, tmp_path, monkeypatch, named):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ASSET_OWNERS_INSTANCES", named and str(tmp_path / named))
    (tmp_path / "empty").mkdir()
    looked_in = tmp_path / (named or "home/instances")
    status, told, said = call("metrics")
    assert (status, told) == (2, "")
    assert said.startswith(f"asset-owners: There is no instance file in {looked_in}, so there is nothing to")
    assert "ASSET_OWNERS_INSTANCES" in said
    assert not (tmp_path / "home").exists()


def test_an_instances_folder_that_goes_away_shows_while_it_is_served(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [ASSET_OWNERS, "metrics", "--listen", address]
    with subprocess.Popen(command) as process:  # noqa: S603  (our own command)
        try:
            session = requests.Session()
            session.mount("http://", HTTPAdapter(max_retries=Retry(total=9, backoff_factor=0.2)))
            before = session.get(f"http://{address}/metrics", timeout=30).text
            folder.rename(folder.with_name("elsewhere"))
            after = session.get(f"http://{address}/metrics", timeout=30).text
            process.terminate()
            process.wait(timeout=20)
        finally:
            process.kill()
    assert "\nasset_owners_instances 1.0\n" in before
    assert "\nasset_owners_instances 0.0\n" in after


@pytest.mark.parametrize("wrong", ["nonsense", "127.0.0.1:", "localhost:http", "127.0.0.1:65536", ":-1"])
@pytest.mark.usefixtures("folder")
def test_an_address_that_is_none_is_refused_with_the_form_that_is_wanted(call, wrong):
    status, _, said = call("metrics", "--listen", wrong)
    assert status == 2
    assert said.startswith(
        f"asset-owners: --listen: {wrong!r} is no address; write it as HOST:PORT, such as "
    )
