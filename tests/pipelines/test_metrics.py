"""`asset-owners metrics` where there is little to tell; what it tells of runs is in `tests/end_to_end`."""

import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from pipelines.cli.metrics import MAX_REQUESTS

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


@pytest.fixture
def served():
    """Serves metrics, with further arguments, and gets them; ends the process."""

    def serve(*arguments, host="127.0.0.1"):
        with socket.create_server((host, 0), family=family(host)) as free:
            port = free.getsockname()[1]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        process = subprocess.Popen(  # noqa: S603  (our own command)
            [ASSET_OWNERS, "metrics", *arguments, "--listen", address], stderr=subprocess.PIPE
        )
        processes.append(process)
        session = requests.Session()
        session.mount("http://", HTTPAdapter(max_retries=Retry(total=9, backoff_factor=0.2)))
        return lambda: session.get(f"http://{address}/metrics", timeout=30).text, process, (host, port)

    processes = []
    yield serve
    for process in processes:
        process.kill()
        process.wait()


def family(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def test_an_instances_folder_that_goes_away_shows_while_it_is_served(folder, served):
    get, *_ = served()
    before = get()
    folder.rename(folder.with_name("elsewhere"))
    assert "\nasset_owners_instances 1.0\n" in before
    assert "\nasset_owners_instances 0.0\n" in get()


def test_a_file_that_breaks_while_it_is_served_is_not_readable(folder, served):
    file = folder / "head-office.yaml"
    get, process, _ = served("--instance", file)
    readable = 'asset_owners_instance_readable{instance="head_office"} '
    assert f"{readable}1.0" in get()
    file.write_text("name: Head office\nurl: [")
    assert f"{readable}0.0" in get()
    process.terminate()
    assert b"Traceback" not in process.communicate(timeout=20)[1]


@pytest.mark.usefixtures("folder")
def test_it_is_served_at_an_address_of_ipv6(served):
    try:
        get, *_ = served(host="::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    assert "asset_owners_instances 1.0" in get()


@pytest.mark.usefixtures("folder")
def test_requests_that_never_end_hold_few_threads_and_not_for_long(served):
    get, process, address = served()
    get()
    with ExitStack() as held:
        for _ in range(60):
            held.enter_context(socket.create_connection(address)).sendall(b"GET /metrics HTTP/1.1\r\n")
        time.sleep(1)
        assert len(list(Path(f"/proc/{process.pid}/task").iterdir())) < MAX_REQUESTS + 20
        assert "asset_owners_instances 1.0" in get()


@pytest.mark.parametrize("wrong", ["nonsense", "127.0.0.1:", "localhost:http", "127.0.0.1:65536", ":-1"])
@pytest.mark.usefixtures("folder")
def test_an_address_that_is_none_is_refused_with_the_form_that_is_wanted(call, wrong):
    status, _, said = call("metrics", "--listen", wrong)
    assert status == 2
    assert said.startswith(
        f"asset-owners: --listen: {wrong!r} is no address; write it as HOST:PORT, such as "
    )
