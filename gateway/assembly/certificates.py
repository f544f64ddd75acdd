"""The files of trusted CAs that a config or the environment names: whether they can be used."""

from collections.abc import Iterator

from gateway.config import model as cfg
from gateway.config.problems import Problem, join
from gateway.http.client.tls import BadCertificatesError, client_context, system_roots_problem


def problems(config: cfg.Config) -> Iterator[Problem]:
    """A problem for each `ca_file` that is missing or no PEM, and for such a file in SSL_CERT_FILE."""
    https = [one for one in config.upstreams.values() if one.base_url.lower().startswith("https:")]
    if https and (problem := system_roots_problem()) is not None:
        yield Problem("SSL_CERT_FILE", f"the environment's file of trusted CAs {problem}")
    for name, upstream in config.upstreams.items():
        if upstream.ca_file is None:
            continue
        field = f"{join('upstreams', name)}.ca_file"
        if upstream not in https:
            yield Problem(field, "only a base_url with https:// has a certificate; remove one of the two")
            continue
        try:
            client_context(upstream.base_url, upstream.ca_file)
        except OSError as error:
            yield Problem(field, f"cannot be read: {error.strerror or error}")
        except BadCertificatesError as error:
            yield Problem(field, str(error))
