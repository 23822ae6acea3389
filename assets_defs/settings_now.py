"""Whether the settings are still those with which a run began: each of its processes reads the file anew."""

import hashlib
import json

from assets_defs.record import RunRecord
from ownership.windows import Window
from resources.search.source import extraction_fingerprint
from resources.settings import Instance, load_instance


def settings_fingerprint(instance: Instance) -> str:
    """Return a hash of the settings that decide what a run concludes about the same inventory."""
    fields = instance.platform_user_value_field, instance.platform_hostname_field
    rules = instance.rules.model_dump_json()
    parts = [*fields, rules, instance.target, extraction_fingerprint(instance)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def began_with(record: RunRecord, instance: Instance, kind: str, window: Window) -> bool:
    """Return whether a run that decides began as this kind, over this window, with these settings.

    Otherwise what it said of itself, or what it made, would not be true any more.
    """
    began = [record.get(column) for column in ("settings_fingerprint", "kind", "window_from", "window_to")]
    return began[0] is None or began == [settings_fingerprint(instance), kind, window.first, window.last]


def has_unchanged_file(instance: Instance) -> bool:
    """Return whether the instance file still says what it said when it was read, such as of `dry_run`."""
    return instance.file is None or load_instance(instance.file) == instance
