"""Why a switch cannot be reached: gRPC says the same of a closed port, of a wrong
certificate and of a port without TLS, so a plain connection is tried.
"""

import asyncio
import socket
import ssl

from rankdeck.model.cluster import Switch
from rankdeck.model.safe_text import clean_line
from rankdeck.telemetry.tls_probe import LIMIT, speaks_tls

_INSTEAD = (
    "a client certificate, which Rankdeck does not have: let it take a user name and password"
)
_NO_CERTIFICATE = f"wants {_INSTEAD}"
_CLOSED = f"closes each connection after the TLS handshake: it may want {_INSTEAD}"
_OTHER_PORT = "is gNMI switched on there, and is `port` right?"


async def find_obstacle(switch: Switch, certificates: bytes | None) -> str:
    """What a connection to the switch meets, in words that follow its name; "" if nothing.

    `certificates`: those of `ca_file`.
    """
    return await asyncio.to_thread(_find, switch, certificates)


def _find(switch: Switch, certificates: bytes | None) -> str:
    try:
        _connect(switch, None)
    except socket.gaierror as error:
        return f"has no address: {switch.host}: {_words(error)}; see `address`"
    except TimeoutError:
        return f"does not answer on port {switch.port}: {_OTHER_PORT}"
    except ConnectionRefusedError:
        return f"has nothing that listens on port {switch.port}: {_OTHER_PORT}"
    except OSError as error:
        return f"cannot be reached on port {switch.port}: {_words(error)}"
    encrypted = speaks_tls(switch.host, switch.port)
    if not switch.tls:
        return f"speaks TLS on port {switch.port}: remove `tls: false`" if encrypted else ""
    if not encrypted:
        return f"speaks no TLS on port {switch.port}: write another `port`, or `tls: false`"
    return _doubt(switch, certificates)


def _doubt(switch: Switch, certificates: bytes | None) -> str:
    """Why one of the two does not trust the other's certificate; "" if all is well."""
    try:
        text = certificates.decode("ascii") if certificates else None
        goes_on = _connect(switch, ssl.create_default_context(cadata=text))
    except ssl.SSLCertVerificationError as error:
        why = clean_line(error.verify_message).rstrip(".")
        return f"shows a certificate that cannot be trusted: {why}; see `ca_file` and `address`"
    except (UnicodeError, ssl.SSLError) as error:
        if "CERTIFICATE_REQUIRED" in str(getattr(error, "reason", "")):
            return _NO_CERTIFICATE
        return f"does not speak TLS with us: {clean_line(str(error))}"
    except OSError:
        return ""
    return "" if goes_on else _CLOSED


def _connect(switch: Switch, context: ssl.SSLContext | None) -> bool:
    """Whether the switch keeps a connection open after the TLS handshake, if there is one.

    Raises OSError, of which TimeoutError is one.
    """
    with socket.create_connection((switch.host, switch.port), LIMIT) as plain:
        if context:
            context.set_alpn_protocols(["h2"])
            with context.wrap_socket(plain, server_hostname=switch.host) as secured:
                # With TLS 1.3 a server refuses only after the handshake.
                return bool(secured.recv(1))
    return True


def _words(error: OSError) -> str:
    return clean_line(error.strerror or str(error))
