"""`asset-owners sandbox demo`: what it says, and the commands that it proposes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("asset-owners")


@pytest.mark.nightly
def test_the_demo_plans_writes_and_counts_and_what_it_proposes_has_something_to_show(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSET_OWNERS_HOME", str(tmp_path / "home"))

    def output(*command):
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)  # noqa: S603
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = output(PROGRAM, "sandbox", "demo")
    assert "Plan: 168 owners to write" in said
    assert "To apply it" not in said, "it does that itself"
    assert "Owners written: 168, of which 156 are right" in said
    proposed = re.findall(r"(?m)^    (ASSET_OWNERS_HOME=.*)$", said.partition("To look further:")[2])
    shown = {
        line: output("/bin/sh", "-c", line)
        for line in proposed
        if not line.endswith(("sandbox ui", "sandbox up", "init"))
    }
    assert [text for line, text in shown.items() if "explain" in line and "asset-owners wrote it" in text]
    assert [text for line, text in shown.items() if "tune" in line and "168 owners were written" in text]
    assert (tmp_path / "audit.xlsx").exists()
    assert len(shown) == 6
