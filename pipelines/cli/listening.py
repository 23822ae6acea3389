"""Ports that a command serves at."""

import errno
import socket

from resources.errors import ConfigurationError


def listen_at(option: str, host: str, port: int) -> socket.socket:
    """Listen at a port; where that cannot be, say which option names it, and why."""
    try:
        (family, *_), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server((host, port), family=family)
    except OSError as error:
        why = "the port is taken" if error.errno == errno.EADDRINUSE else error.strerror
        raise ConfigurationError(
            f"{option}: cannot serve at {host}:{port}: {why}; choose another one"
        ) from error
