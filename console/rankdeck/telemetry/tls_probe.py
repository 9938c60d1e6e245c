"""Whether a port speaks TLS at all."""

import socket
import ssl

LIMIT = 4.0
"""Seconds for the connection, and again for each step of the handshake."""


def speaks_tls(host: str, port: int) -> bool:
    """Whether a server answers the begin of a TLS handshake; nothing is trusted or sent.

    Blocks for up to some LIMIT.
    """
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), LIMIT) as plain:
            context.wrap_socket(plain, server_hostname=host).close()
    except OSError:
        return False
    return True
