import pytest


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch):
    """Codes that were used are remembered in the home."""
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "home"))
