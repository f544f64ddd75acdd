"""What TLS connections to an upstream trust: the system's roots, and the CAs of its `ca_file`."""

import os
import ssl


class BadCertificatesError(ValueError):
    """A file has no certificate in PEM format; the message says what is wrong with it."""


def client_context(base_url: str, ca_file: str | None) -> ssl.SSLContext | None:
    """The context for connections to this address; None if it is plain HTTP.

    OSError or BadCertificatesError if the file cannot be used.
    """
    if not base_url.lower().startswith("https:"):
        return None
    context = ssl.create_default_context()
    if ca_file is not None:
        load_authorities(context, ca_file)
    return context


def load_authorities(context: ssl.SSLContext, ca_file: str) -> None:
    """Trust the CAs of a PEM file too. OSError or BadCertificatesError if it cannot be used."""
    before = context.cert_store_stats()["x509"]
    with open(ca_file, "rb") as file:
        pem = file.read()
    if b"PRIVATE KEY-----" in pem and b"BEGIN CERTIFICATE-----" not in pem:
        raise BadCertificatesError("has a private key, but no certificate; name the CA's certificate")
    if b"-----BEGIN " not in pem:
        der = pem[:1] == b"\x30"
        hint = "; convert it: openssl x509 -inform der -in FILE -out FILE.pem" if der else ""
        raise BadCertificatesError(f"has no certificate in PEM format (-----BEGIN CERTIFICATE-----){hint}")
    try:
        context.load_verify_locations(ca_file)
    except ssl.SSLError as error:
        reason = (error.reason or "unreadable").replace("_", " ").lower()
        raise BadCertificatesError(f"has no usable certificate in PEM format ({reason})") from None
    if context.cert_store_stats()["x509"] == before and not _trusted_already(context, pem):
        raise BadCertificatesError("has no certificate in PEM format")


def _trusted_already(context: ssl.SSLContext, pem: bytes) -> bool:
    fresh = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    fresh.load_verify_locations(cadata=pem.decode("ascii", "ignore"))
    return fresh.cert_store_stats()["x509"] > 0


def system_roots_problem() -> str | None:
    """What is wrong with the file that SSL_CERT_FILE names instead of the system's roots; None if nothing."""
    path = os.environ.get(ssl.get_default_verify_paths().openssl_cafile_env)
    if not path:
        return None
    try:
        load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), path)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    except BadCertificatesError as error:
        return str(error)
    return None
