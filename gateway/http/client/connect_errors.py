"""Why no connection came about, in words that name no host: for the client's message, the log and `check`."""

import errno
import os
import socket
import ssl
from typing import Final

from gateway.core.errors import CONNECT, GATEWAY_OVERLOADED, LOCAL, TLS, UPSTREAM_ERROR, UPSTREAM_UNAVAILABLE
from gateway.core.errors import UpstreamFailure as Failure

OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_LOCAL: Final = OUT_OF_DESCRIPTORS | {errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
"""What this machine has run out of; it says nothing about the upstream."""

_CERTIFICATE: Final = {  # OpenSSL's X509_V_ERR_*
    9: "its certificate is not valid yet",
    10: "its certificate has expired",
    18: "its certificate is self-signed",
    19: "its certificate is signed by a CA that is not trusted (a self-signed one in its chain)",
    20: "its certificate is signed by a CA that is not trusted",
    21: "its certificate is signed by a CA that is not trusted, or it sends no intermediate certificate",
    23: "its certificate is revoked",
    26: "its certificate is not made for servers",
    62: "its certificate is for another host",
    64: "its certificate is for another address",
    66: "its certificate has a key that is too weak",
    67: "its certificate's CA has a key that is too weak",
    68: "its certificate has a signature that is too weak",
}
_UNTRUSTED: Final = frozenset({18, 19, 20, 21})
NO_TLS: Final = "it does not speak TLS"
_HANDSHAKE: Final = {
    "WRONG_VERSION_NUMBER": NO_TLS,
    "HTTP_REQUEST": NO_TLS,
    "PACKET_LENGTH_TOO_LONG": NO_TLS,
    "RECORD_LAYER_FAILURE": NO_TLS,
    "UNSUPPORTED_PROTOCOL": "it offers only old versions of TLS",
    "NO_PROTOCOLS_AVAILABLE": "it offers only old versions of TLS",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it offers no version of TLS that is allowed here",
    "UNEXPECTED_EOF_WHILE_READING": "it closed the connection",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it requires a client certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it refused the handshake",
    "TLSV1_UNRECOGNIZED_NAME": "it does not know this host name",
}


def tls_reason(error: ssl.SSLError) -> str:
    """Why a handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _CERTIFICATE.get(error.verify_code) or f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "it closed the connection"
    return _HANDSHAKE.get(error.reason or "") or (error.reason or "protocol error").replace("_", " ").lower()


def is_untrusted(error: Exception) -> bool:
    """Whether a CA is missing, so that `ca_file` may help."""
    return isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _UNTRUSTED


def connect_reason(error: OSError | UnicodeError) -> str:
    """Why a host cannot be reached."""
    if isinstance(error, socket.gaierror):
        temporary = error.errno in (socket.EAI_AGAIN, socket.EAI_SYSTEM)
        return "its name cannot be looked up now" if temporary else "its name does not exist"
    if isinstance(error, UnicodeError):
        return "its name is no host name"
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return "no answer"
    number = _first_errno(error)
    return os.strerror(number).lower() if number else "no connection"


def is_local(error: BaseException) -> bool:
    """Whether this machine lacks something, so that the upstream is not to blame."""
    return isinstance(error, OSError) and not isinstance(error, socket.gaierror) and _first_errno(error) in _LOCAL


def out_of_descriptors(error: BaseException) -> bool:
    """Whether the process or the machine has no file descriptor left."""
    return isinstance(error, OSError) and _first_errno(error) in OUT_OF_DESCRIPTORS


def failure_of(name: str, error: OSError | UnicodeError) -> Failure:
    """The failure of a connection to the upstream `name`."""
    if isinstance(error, ssl.SSLError):
        message = f"The TLS handshake with upstream `{name}` failed: {tls_reason(error)}."
        return Failure(UPSTREAM_ERROR, message, cause=TLS)
    if is_local(error):
        message = f"The gateway cannot open a connection to upstream `{name}`: {connect_reason(error)}."
        return Failure(GATEWAY_OVERLOADED, message, cause=LOCAL)
    message = f"Upstream `{name}` cannot be reached: {connect_reason(error)}."
    return Failure(UPSTREAM_UNAVAILABLE, message, cause=CONNECT)


def _first_errno(error: BaseException) -> int | None:
    """The error's own number, or that of the first of several attempts, which asyncio joins into one."""
    number = getattr(error, "errno", None)
    if number is None and isinstance(error.__cause__, OSError):
        number = error.__cause__.errno
    if number is None and isinstance(error, OSError) and error.__context__ is not None:
        number = getattr(error.__context__, "errno", None)
    return number
