"""The process of a contender that is a function: `python -m bench.contender MODULE:FUNCTION ARGUMENTS`.

The function prepares and returns what is timed; that returns what it counted, and `parts` in seconds if it
likes.
"""

import importlib
import json
import sys
import time

MARK = "bench: "


def main() -> None:
    """Prepare, time, and print what was found as the last line."""
    module, _, name = sys.argv[1].partition(":")
    timed = getattr(importlib.import_module(module), name)(**json.loads(sys.argv[2]))
    began, used = time.perf_counter(), time.process_time()
    counts = timed()
    found = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used}
    parts = counts.pop("parts", {})
    sys.stdout.write(MARK + json.dumps({**found, "counts": counts, "parts": parts}) + "\n")


if __name__ == "__main__":
    main()
