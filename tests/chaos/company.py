"""A company whose owners take a while to write, and runs on it in processes of their own."""

import itertools
import subprocess

from tests.end_to_end.stand import ASSET_OWNERS, TODAY, at_noon, logons

INDEX = "logs-chaos"
WRITTEN = 12
CONCURRENCY = 3
SETTINGS = {"index": INDEX, "writes": {"concurrency": CONCURRENCY}}
USERS = [
    {"id": "ann", "user_email": "ann@corp.example", "user_department": "Sales", "criticality": "high"},
    {"id": 17, "user_email": "bob@corp.example", "user_department": "Works", "criticality": None},
]
HOSTS = [
    {
        "id": f"h-{number:02}",
        "search_agent_name": f"PC-{number:02}",
        "asset_owner": owner,
        "department": "old",
    }
    for number, owner in enumerate([None] * 12 + ["ann", "ann", 17, ["ann", 17]])
]


def logons_of_the_company():
    """Each host's are those of one user: ann and bob in turn."""
    users = itertools.cycle(["ann", "bob"])
    for host in HOSTS:
        yield from logons(str(host["search_agent_name"]).lower(), next(users), 3, at=at_noon(TODAY))


def start(stand):
    """A run in a process of its own."""
    file = stand.instance_file(SETTINGS)
    command = [ASSET_OWNERS, "run", "--instance", file, "--as-of", TODAY.isoformat()]
    return subprocess.Popen(  # noqa: S603 (our own command)
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
