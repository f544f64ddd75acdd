"""From the config to the door of the admin port."""

import hashlib
import ipaddress
import os
from collections.abc import Callable

from gateway.auth.admin_access import AdminRules
from gateway.config.model import AdminConfig
from gateway.core.clock import Clock
from gateway.http.server.admin_access import AdminAccess

_SECRET_BYTES = 32


def admin_access(config: Callable[[], AdminConfig], clock: Clock) -> AdminAccess:
    """The door; `config` returns the current section, so that a reload takes back a key at once."""
    return AdminAccess(lambda: _rules(config()), os.urandom(_SECRET_BYTES), clock)


def _rules(config: AdminConfig) -> AdminRules:
    return AdminRules(
        config.host,
        [hashlib.sha256(key.reveal().encode()).digest() for key in config.keys],
        config.trusted_header,
        [ipaddress.ip_network(one) for one in config.trusted_proxies],
    )
