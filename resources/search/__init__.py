"""Where logons come from: `open_source` chooses the source of an instance."""

import time
from collections.abc import Callable

from resources.search.client import SearchClient
from resources.search.several import SeveralLogs
from resources.search.source import EvidenceSource
from resources.settings import Instance


def open_source(instance: Instance, *, sleep: Callable[[float], None] = time.sleep) -> EvidenceSource:
    """Open the source of an instance; ConfigurationError when a secret or `ca_file` cannot be used."""
    return (SeveralLogs if instance.logs else SearchClient)(instance, sleep=sleep)
