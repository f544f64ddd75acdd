"""Verifies a JSON Web Token (RFC 7519) with the keys of its issuer: signature, `exp`, `nbf`, `iss` and `aud`.

Only the configured algorithms count, all of them asymmetric, and only keys from the provider's own key set: what
a token's header says about keys (`jwk`, `jku`, `x5c`, `x5u`) is never read.
"""

import math
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
from joserfc import jwt
from joserfc.errors import BadSignatureError, JoseError
from joserfc.jws import JWSRegistry
from joserfc.jwt import JWTClaimsRegistry
from joserfc.util import urlsafe_b64decode

from gateway.auth.authenticate import LONGEST_TOKEN, RefusedTokenError
from gateway.auth.signing_keys import SigningKeys

LEEWAY_S: Final = 30
"""Seconds by which the clocks of the provider and of this machine may differ."""
_MAX_HEADER_BYTES: Final = 4096
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)

UNKNOWN_KEY: Final = "its signing key is not known"


class _Header(msgspec.Struct):
    alg: str
    kid: str | None = None


class _Issued(msgspec.Struct):
    iss: str


def issuer_of(token: str) -> str | None:
    """Who a token claims to be from, unverified; None if it is no token."""
    if len(token) > LONGEST_TOKEN or _TOKEN.fullmatch(token) is None:
        return None
    issued = _decoded(token.split(".")[1], _Issued)
    return None if issued is None else issued.iss


class TokenVerifier:
    """The rules for the tokens of one provider."""

    def __init__(self, issuer: str, audience: str, algorithms: Collection[str]) -> None:
        self.issuer = issuer
        self._audience = audience
        self._algorithms = frozenset(algorithms)

    def verify(self, token: str, keys: SigningKeys, unix: float) -> Mapping[str, Any]:
        """The claims of a token that is valid at `unix` (seconds since 1970), or RefusedTokenError."""
        header = _decoded(token.partition(".")[0], _Header)
        if header is None:
            raise RefusedTokenError("it is malformed")
        if header.alg not in self._algorithms:
            raise RefusedTokenError("its algorithm is not one of `algorithms`")
        claims = _signed_claims(token, header, keys)
        try:
            JWTClaimsRegistry(
                int(unix),
                LEEWAY_S,
                iss={"essential": True, "value": self.issuer},
                aud={"essential": True, "value": self._audience},
                exp={"essential": True},
            ).validate(dict(claims))
        except JoseError as error:
            raise RefusedTokenError(_claim_problem(error)) from None
        if not all(math.isfinite(claims.get(name) or 0) for name in ("exp", "nbf", "iat")):
            raise RefusedTokenError("one of its times is no number")
        return claims


def _signed_claims(token: str, header: _Header, keys: SigningKeys) -> Mapping[str, Any]:
    registry = JWSRegistry(algorithms=[header.alg], strict_check_header=False)
    registry.max_header_length = _MAX_HEADER_BYTES
    candidates = keys.matching(header.kid, header.alg)
    for key in candidates:
        try:
            return jwt.decode(token, key, [header.alg], registry).claims
        except BadSignatureError:
            continue
        except (JoseError, ValueError, RecursionError):
            raise RefusedTokenError("it is malformed") from None
    # Without a `kid` a rotated key shows in nothing but signatures that do not fit.
    named = candidates and header.kid is not None
    raise RefusedTokenError("its signature does not fit" if named else UNKNOWN_KEY)


def _claim_problem(error: JoseError) -> str:
    claim = getattr(error, "claim", "")
    return (
        f"its claim `{claim}` is missing or not valid"
        if claim in ("iss", "aud", "exp", "nbf", "iat")
        else "a claim is not valid"
    )


def _decoded(part: str, shape: type[msgspec.Struct]) -> Any:
    try:
        return msgspec.json.decode(urlsafe_b64decode(part.encode("ascii")), type=shape)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
