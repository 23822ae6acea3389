"""Notifies systemd of a service's state (`Type=notify`). Not needed once Dagster's own services do it."""

import os
import socket


def notify(state: str) -> None:
    """Send a state, such as READY=1, to the service manager if one listens."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(f"\0{address[1:]}" if address[0] == "@" else address)
            sender.send(state.encode())
