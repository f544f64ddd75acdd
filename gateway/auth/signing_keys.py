"""The public keys of an identity provider, from its JSON Web Key Set (RFC 7517)."""

import warnings
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, OKPKey, RSAKey, import_key
from joserfc.jws import JWSRegistry

_PUBLIC: Final = ("kty", "kid", "use", "key_ops", "alg", "n", "e", "crv", "x", "y")
"""Members that are read; private ones, certificates and addresses of certificates are not."""
_KEY_TYPES: Final = frozenset({"RSA", "EC", "OKP"})
_MAX_KEYS: Final = 100

PublicKey = RSAKey | ECKey | OKPKey


class NoSigningKeysError(ValueError):
    """The text has no key that can verify a signature; the message says why."""


class _SigningKey(NamedTuple):
    kid: str | None
    algorithm: str | None
    key: PublicKey


class SigningKeys:
    """The keys of one provider, as they were read at one time."""

    def __init__(self, keys: Sequence[_SigningKey] = ()) -> None:
        self._keys = keys

    @classmethod
    def parse(cls, text: bytes) -> "SigningKeys":
        """The usable keys of a key set; others are skipped, as RFC 7517 demands. NoSigningKeysError if none is."""
        try:
            document = msgspec.json.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise NoSigningKeysError("is no JSON") from None
        listed = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(listed, list):
            raise NoSigningKeysError("is no JSON Web Key Set: it has no list `keys`")
        keys = [key for entry in listed[:_MAX_KEYS] if (key := _signing_key(entry)) is not None]
        if not keys:
            raise NoSigningKeysError("has no public key (RSA from 2048 bits, EC or OKP) for signatures")
        return cls(keys)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._keys)

    def matching(self, kid: str | None, algorithm: str) -> list[PublicKey]:
        """The keys that may have made a signature; all that fit the algorithm if the token names none."""
        model = JWSRegistry.algorithms[algorithm]
        return [
            each.key
            for each in self._keys
            if (kid is None or each.kid == kid) and each.algorithm in (None, algorithm) and _fits(model, each.key)
        ]


def _signing_key(entry: Any) -> _SigningKey | None:
    if not isinstance(entry, dict) or entry.get("kty") not in _KEY_TYPES:
        return None
    operations = entry.get("key_ops")
    if entry.get("use", "sig") != "sig" or not (operations is None or "verify" in operations):
        return None
    kid, algorithm = entry.get("kid"), entry.get("alg")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", SecurityWarning)  # of RSA keys below 2048 bits
            key = import_key({name: entry[name] for name in _PUBLIC if name in entry})
    except (JoseError, ValueError, TypeError, SecurityWarning):
        return None
    if not isinstance(key, PublicKey) or not isinstance(kid, str | None) or not isinstance(algorithm, str | None):
        return None
    return _SigningKey(kid, algorithm, key)


def _fits(model: Any, key: PublicKey) -> bool:
    try:
        model.check_key(key)
    except (JoseError, ValueError):
        return False
    return True
