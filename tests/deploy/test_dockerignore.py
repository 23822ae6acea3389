"""What deploy/Dockerfile copies is a part of what Docker is sent."""

from pathlib import Path

from tests.deploy.machine import PROGRAM
from tests.deploy.test_image import stage


def test_what_the_image_is_made_of_is_not_ignored():
    known = {line.removeprefix("!") for line in (PROGRAM / ".dockerignore").read_text().split()}
    copied = [file for name, words in stage(0) if name == "COPY" for file in words.split()[:-1]]
    assert [file for file in copied if Path(file).parts[0] not in known] == []
