"""An identity provider: it signs JSON Web Tokens and serves its public keys, made with nothing but `cryptography`."""

import asyncio
import base64
import hmac
import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

ISSUER = "https://login.example.com/realms/a"
AUDIENCE = "sluice"

_CURVES: dict[str, tuple[type[ec.EllipticCurve], int, hashes.HashAlgorithm]] = {
    "P-256": (ec.SECP256R1, 32, hashes.SHA256()),
    "P-384": (ec.SECP384R1, 48, hashes.SHA384()),
}


def b64(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    """An integer as JWK has it."""
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@cache
def rsa_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    """One key pair per name, made once."""
    return rsa.generate_private_key(65537, bits)


class SigningKey:
    """A key pair with its `kid`: RSA, or EC on a curve."""

    def __init__(self, kid: str | None, curve: str = "", bits: int = 2048, **members: Any) -> None:
        self.kid = kid
        self._curve = curve
        self._members = members
        self._key = ec.generate_private_key(_CURVES[curve][0]()) if curve else rsa_key(str(kid), bits)

    def jwk(self) -> dict[str, Any]:
        """The public half."""
        members: dict[str, Any] = {} if self.kid is None else {"kid": self.kid}
        if isinstance(self._key, rsa.RSAPrivateKey):
            numbers = self._key.public_key().public_numbers()
            members |= {"kty": "RSA", "use": "sig", "n": number(numbers.n), "e": number(numbers.e)}
        else:
            point, size = self._key.public_key().public_numbers(), _CURVES[self._curve][1]
            x, y = (b64(value.to_bytes(size, "big")) for value in (point.x, point.y))
            members |= {"kty": "EC", "use": "sig", "crv": self._curve, "x": x, "y": y}
        return members | self._members

    def sign(self, claims: Any, header: Mapping[str, Any] | None = None, algorithm: str | None = None) -> str:
        """A token; `header` adds members, `algorithm` is what it says and how RSA signs."""
        algorithm = algorithm or ("RS256" if not self._curve else {"P-256": "ES256", "P-384": "ES384"}[self._curve])
        named = {} if self.kid is None else {"kid": self.kid}
        head = {"alg": algorithm, "typ": "JWT", **named, **(header or {})}
        return self.signed(b64(json.dumps(head).encode()) + "." + b64(json.dumps(claims).encode()), algorithm)

    def signed(self, text: str, algorithm: str) -> str:
        """The text with its signature."""
        if isinstance(self._key, ec.EllipticCurvePrivateKey):
            _, size, digest = _CURVES[self._curve]
            r, s = decode_dss_signature(self._key.sign(text.encode(), ec.ECDSA(digest)))
            return f"{text}.{b64(r.to_bytes(size, 'big') + s.to_bytes(size, 'big'))}"
        pss = padding.PSS(padding.MGF1(hashes.SHA256()), 32)
        how = pss if algorithm.startswith("PS") else padding.PKCS1v15()
        return f"{text}.{b64(self._key.sign(text.encode(), how, hashes.SHA256()))}"


def hs256(claims: Any, secret: bytes, header: Mapping[str, Any] | None = None) -> str:
    """A token signed with a secret."""
    head = {"alg": "HS256", "typ": "JWT", **(header or {})}
    text = b64(json.dumps(head).encode()) + "." + b64(json.dumps(claims).encode())
    return f"{text}.{b64(hmac.digest(secret, text.encode(), 'sha256'))}"


def claims(now: float, **other: Any) -> dict[str, Any]:
    """Claims that are valid for five minutes from `now`; None leaves a claim out."""
    usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "groups": ["eng"], "iat": int(now), "exp": int(now) + 300}
    return {name: value for name, value in (usual | other).items() if value is not None}


class IdentityProvider:
    """Serves its key set on a free port of 127.0.0.1. While `away`, it closes every connection without an answer."""

    def __init__(self, *keys: SigningKey) -> None:
        self.keys = list(keys)
        self.away = False
        self.body: bytes | None = None
        """Served in place of the key set."""
        self.status = 200
        self.fetched = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    @property
    def url(self) -> str:
        """The address of the key set."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/keys"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            if not self.away:
                self.fetched += 1
                body = json.dumps({"keys": [key.jwk() for key in self.keys]}).encode()
                body = body if self.body is None else self.body
                head = f"HTTP/1.1 {self.status} X\r\nconnection: close\r\ncontent-length: {len(body)}\r\n"
                writer.write(f"{head}location: /elsewhere\r\n\r\n".encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
