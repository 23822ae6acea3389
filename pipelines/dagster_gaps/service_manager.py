"""What systemd is told of a service (`Type=notify`); elsewhere nothing.

Not needed once Dagster's own services do it.
"""

import os
import socket


def notify(state: str) -> None:
    """Tell the service manager, if there is one that listens: READY=1 once the service answers."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(f"\0{address[1:]}" if address[0] == "@" else address)
            sender.send(state.encode())
