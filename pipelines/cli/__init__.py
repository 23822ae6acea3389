"""The command line: `asset-owners`."""

import atexit
import gc
import json
import os
import signal
import sys
from contextlib import suppress
from io import TextIOWrapper


def console_script() -> None:
    """Run the command, and end the process with its status, without freeing each object.

    That takes most of a second after a run. Other exit handlers are called.
    """
    status = 0

    def end() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # its reader has left
                stream.flush()
        os._exit(status)

    atexit.register(end)  # the first one is called last
    try:
        main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else bool(ended.code)
        raise
    except BaseException:
        atexit.unregister(end)
        raise


def main() -> None:
    """Run the command line; exit with status 2 for a wrong setting, 1 for any other failure (rules 8.1).

    Whatever it writes is for its owner alone, Dagster's own files included.
    """
    os.umask(0o077)
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed, as services may be started: the next file would take its number
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: PTH123, SIM115  (until the process ends)
        elif isinstance(stream, TextIOWrapper):  # a name that cannot be shown here fails nothing
            with suppress(OSError):  # where it was opened for a file and has become a pipe
                stream.reconfigure(errors="surrogateescape" if name == "stdin" else "backslashreplace")
    # As the first process of a container it would not hear of SIGTERM without a handler.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A command keeps nearly all that it makes: to collect garbage as often as usual takes a tenth of a run.
    gc.set_threshold(20_000, 20, 50)
    from pipelines.cli.app import app

    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # what cannot be printed is an error like another one
    except Exception as error:  # noqa: BLE001  (printed with its trace where no operator can fix it)
        from pipelines.cli.options import message_and_status, print_message

        message, status = message_and_status(error)
        try:
            if "--json" in sys.argv:
                print(json.dumps({"error": message}))
            sys.stdout.flush()
        except OSError:  # the output itself: nothing of it is tried again as the program ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print_message(message, level="error")
        sys.exit(status)
