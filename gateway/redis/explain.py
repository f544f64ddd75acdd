"""Why Redis cannot be reached or used, in words that say what to check; never with a part of the login."""

import errno
import os
import re
from typing import Final

from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import AuthenticationError, ResponseError

_UNREACHED: Final = {
    *(errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENOENT, errno.EACCES, errno.ETIMEDOUT)
}
_LOGIN: Final = re.compile("NOAUTH|WRONGPASS|Authentication required|invalid username-password", re.IGNORECASE)


def explained(error: BaseException, where: str, *, tls: bool, waited: str) -> str:
    """What went wrong with the server at `where`, before it was used. `waited` is the time that it had."""
    if isinstance(error, TimeoutError):
        hint = "; does it speak redis:// instead of rediss://?" if tls else ""
        return f"no answer from {where} within {waited}; check the address in redis.url{hint}"
    if isinstance(error, MasterNotFoundError):
        return f"{str(error)[:300]}; check the sentinels and the name in redis.url"
    if isinstance(error, AuthenticationError) or _LOGIN.search(str(error)):
        return f"{where} rejected the login; check user and password in redis.url"
    if "SELECT is not allowed" in str(error):
        return f"{where} is a node of a cluster, which has only database 0; check redis.url"
    if isinstance(error, ResponseError):
        return f"{where} answered with the error {str(error)[:200]}"
    cause: BaseException | None = error
    while cause is not None:
        names = {kind.__name__ for kind in type(cause).__mro__}  # this package opens no socket itself
        if "gaierror" in names:
            return f"no such host: {where.rpartition(':')[0]}; check redis.url"
        if "SSLCertVerificationError" in names:
            return f"the certificate of {where} is not trusted or not for this host; check the host in redis.url"
        if isinstance(cause, OSError) and "SSLError" not in names and cause.errno in _UNREACHED:
            return f"cannot connect to {where} ({os.strerror(cause.errno)}); check redis.url"
        cause = cause.__cause__ or cause.__context__
    scheme = "does it speak redis:// instead of rediss://?" if tls else "does it speak rediss:// (TLS)?"
    return f"{where} does not answer as Redis does; {scheme}"
