"""The sandbox as a whole: what it begins with, and what it goes on with."""

import shutil
from functools import partial

import pytest
import requests

from sandbox.company import generate
from sandbox.stand import INDEX, running_sandbox

pytestmark = pytest.mark.nightly


def logons(home):
    """How many documents the account of the instance file finds."""
    with running_sandbox(home, fresh=False, progress=print) as sandbox:
        engine = sandbox.engine
        password = (home / "sandbox" / "search-password").read_text()
        answer = requests.get(
            f"{engine.url}/{INDEX}/_count",
            auth=(engine.reader.username, password),
            verify=str(engine.ca_file),
            timeout=60,
        )
        return answer.json()["count"]


def test_an_engine_whose_data_were_deleted_is_filled_again(tmp_path, monkeypatch):
    """As root it keeps them in the cache for downloads, which one may well empty."""
    monkeypatch.setattr("sandbox.stand.generate", partial(generate, days=2))
    before = logons(tmp_path)
    shutil.rmtree((tmp_path / "sandbox" / "engine").resolve())
    assert logons(tmp_path) == before > 0
