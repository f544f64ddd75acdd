"""Requests on a raw socket that must come to nothing: each is refused, and no part of it reaches an upstream.

They are the ways in which two HTTP parsers have been brought to disagree about where a request ends or whom
it is for, and the ways to make one work or wait for nothing. Every probe carries a second, hidden request
where it can: whoever is fooled calls the upstream with it.
"""

import gzip
import zlib
from typing import NamedTuple

from doubles.rawclient import request_bytes
from doubles.script import LAST_CHUNK, compact, frame
from doubles.vocabulary import C0, CHAT

BODY = compact(C0)
HIDDEN = request_bytes("POST", CHAT, {**C0, "hidden": True})
LINE = b"POST /v1/chat/completions HTTP/1.1\r\n"
HOST = b"host: gw.test\r\n"
JSON = b"content-type: application/json\r\n"
START = LINE + HOST + JSON
LENGTH = b"content-length: %d\r\n" % len(BODY)
CHUNKED = b"transfer-encoding: chunked\r\n"
CHUNKS = frame(BODY) + LAST_CHUNK
BOMB = gzip.compress(b" " * 2**26, 9)


class Probe(NamedTuple):
    """What is sent, and the status of the one answer."""

    sent: bytes
    status: int = 400


def _length(value: bytes) -> Probe:
    """A Content-Length that is none."""
    return Probe(START + b"content-length: " + value + b"\r\n\r\n" + BODY + HIDDEN)


def _coding(line: bytes) -> Probe:
    """A Transfer-Encoding that is none that we know, or not for every parser."""
    return Probe(START + line + b"\r\n\r\n" + CHUNKS + HIDDEN)


def _both(line: bytes) -> Probe:
    """A length beside a coding, in disguise: to the one parser the body ends before the hidden request."""
    return Probe(START + LENGTH + line + b"\r\n\r\n" + LAST_CHUNK + HIDDEN)


def _chunks(sent: bytes) -> Probe:
    return Probe(START + CHUNKED + b"\r\n" + sent + HIDDEN)


def _head(lines: bytes) -> Probe:
    return Probe(LINE + lines + JSON + LENGTH + b"\r\n" + BODY + HIDDEN)


def _target(target: bytes, status: int = 404) -> Probe:
    return Probe(b"POST " + target + b" HTTP/1.1\r\n" + HOST + JSON + LENGTH + b"\r\n" + BODY, status)


def _body(headers: bytes, body: bytes, status: int) -> Probe:
    return Probe(START + headers + b"content-length: %d\r\n\r\n" % len(body) + body, status)


LENGTHS_AND_CODINGS = {
    "length and chunked": _both(b"transfer-encoding: chunked"),
    "chunked and length": Probe(START + CHUNKED + LENGTH + b"\r\n" + LAST_CHUNK + HIDDEN),
    "length and a coding with a tab": _both(b"transfer-encoding:\tchunked"),
    "length and a coding in capitals": _both(b"Transfer-Encoding: CHUNKED"),
    "length and a coding with a blank before its colon": _both(b"transfer-encoding : chunked"),
    "length and a coding after a carriage return": _both(b"x-a: \rtransfer-encoding: chunked"),
    "length and a coding after a line feed": _both(b"x-a: b\ntransfer-encoding: chunked\n"),
    "length and a folded coding": _both(b"transfer-encoding:\r\n chunked"),
    "length and an identity coding": _both(b"transfer-encoding: identity"),
    "two lengths that differ": Probe(START + LENGTH + b"content-length: 5\r\n\r\n" + BODY + HIDDEN),
    "two lengths alike": Probe(START + LENGTH + LENGTH + b"\r\n" + BODY + HIDDEN),
    "two lengths in one header": _length(b"%d, 5" % len(BODY)),
    "a negative length": _length(b"-1"),
    "a signed length": _length(b"+%d" % len(BODY)),
    "a hexadecimal length": _length(b"0x10"),
    "a length with a blank in it": _length(b"1 0"),
    "a length with an underscore": _length(b"1_0"),
    "no length": _length(b""),
    "a length beyond 64 bits": _length(b"9" * 30),
    "chunked123": _coding(b"transfer-encoding: chunked123"),
    "chunked twice": _coding(b"transfer-encoding: chunked, chunked"),
    "chunked in two headers": _coding(b"transfer-encoding: chunked\r\ntransfer-encoding: chunked"),
    "gzip, chunked": _coding(b"transfer-encoding: gzip, chunked"),
    "chunked, identity": _coding(b"transfer-encoding: chunked, identity"),
    "a coding in quotes": _coding(b'transfer-encoding: "chunked"'),
    "a coding behind a vertical tab": _coding(b"transfer-encoding: \x0bchunked"),
    "chunked in HTTP/1.0": Probe(
        START.replace(b"HTTP/1.1", b"HTTP/1.0") + LENGTH + CHUNKED + b"\r\n" + LAST_CHUNK + HIDDEN
    ),
}
CHUNK_TRICKS = {
    "a chunk size that is none": _chunks(b"zz\r\n" + BODY + b"\r\n" + LAST_CHUNK),
    "no chunk size": _chunks(b"\r\n" + BODY + b"\r\n" + LAST_CHUNK),
    "a negative chunk size": _chunks(b"-%x\r\n" % len(BODY) + BODY + b"\r\n" + LAST_CHUNK),
    "a chunk size with 0x": _chunks(b"0x%x\r\n" % len(BODY) + BODY + b"\r\n" + LAST_CHUNK),
    "a chunk size with an underscore": _chunks(b"1_0\r\n" + BODY + b"\r\n" + LAST_CHUNK),
    "a chunk size beyond 64 bits": _chunks(b"f" * 17 + b"\r\n" + BODY + b"\r\n" + LAST_CHUNK),
    "a line feed in a chunk extension": _chunks(b"%x;a\nb\r\n" % len(BODY) + BODY + b"\r\n" + LAST_CHUNK),
    "a chunk that is longer than it says": _chunks(b"5\r\n" + BODY + b"\r\n" + LAST_CHUNK),
    "a chunk that ends in line feeds": _chunks(b"%x\n" % len(BODY) + BODY + b"\n0\n\n"),
    "a trailer that is no header": _chunks(frame(BODY) + b"0\r\nx y\r\n\r\n"),
    "a trailer with a blank before its colon": _chunks(frame(BODY) + b"0\r\ncontent-length : 5\r\n\r\n"),
}
HEADS = {
    "no Host": Probe(LINE + JSON + LENGTH + b"\r\n" + BODY + HIDDEN),
    "two Hosts": _head(HOST + b"host: other.test\r\n"),
    "two Hosts alike": _head(HOST + HOST),
    "an empty Host": _head(b"host: \r\n"),
    "a Host with a path": _head(b"host: gw.test/v1?x=\r\n"),
    "a Host with a user": _head(b"host: user@gw.test\r\n"),
    "two Hosts in one header": _head(b"host: gw.test, other.test\r\n"),
    "a Host with a port that is none": _head(b"host: gw.test:80a\r\n"),
    "a Host with a port beyond all ports": _head(b"host: gw.test:99999\r\n"),
    "a Host in half a bracket": _head(b"host: [::1\r\n"),
    "a Host with a fragment": _head(b"host: gw.test#x\r\n"),
    "a Host that is not ASCII": _head(b"host: g\xfc.test\r\n"),
    "a folded header": _head(HOST + b"x-a: b\r\n c\r\n"),
    "a header without a name": _head(HOST + b": b\r\n"),
    "a header without a colon": _head(HOST + b"x-a\r\n"),
    "a blank in a header's name": _head(HOST + b"x a: b\r\n"),
    "a zero byte in a header": _head(HOST + b"x-a: \x00\r\n"),
    "a zero byte in a header's name": _head(HOST + b"x\x00a: b\r\n"),
    "a blank before the first header": Probe(LINE + b" " + HOST + JSON + LENGTH + b"\r\n" + BODY + HIDDEN),
    "line feeds alone": Probe((START + LENGTH).replace(b"\r\n", b"\n") + b"\n" + BODY + HIDDEN),
    "a carriage return alone": Probe(START + b"x-a: b\rx-b: c\r\n" + LENGTH + b"\r\n" + BODY + HIDDEN),
    "a method that is none": Probe(b"PO ST" + START[4:] + LENGTH + b"\r\n" + BODY + HIDDEN),
    "a version that is none": Probe(START.replace(b"HTTP/1.1", b"HTTP/1.x") + LENGTH + b"\r\n" + BODY),
    "a version to come": Probe(START.replace(b"HTTP/1.1", b"HTTP/3.7") + LENGTH + b"\r\n" + BODY + HIDDEN),
    "HTTP/0.9": Probe(b"POST /v1/chat/completions\r\n\r\n" + BODY),
    "HTTP/2": Probe(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "TLS": Probe(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n\r\n"),
    "no HTTP": Probe(bytes(range(128, 256)) + b"\r\n\r\n"),
    "a target of 70 kB": Probe(b"POST /" + b"x" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n"),
    "a header of 100 kB": _head(HOST + b"x-a: " + b"y" * 100_000 + b"\r\n"),
    "a header's name of 100 kB": _head(HOST + b"x" * 100_000 + b": y\r\n"),
    "1,000 headers": _head(HOST + b"x-a: b\r\n" * 1000),
    "1,000 names": _head(HOST + b"".join(b"x-%d: b\r\n" % number for number in range(1000))),
}
TARGETS = {
    "another host in the target": _target(b"http://other.test/v1/chat/completions", 400),
    "another port in the target": _target(b"http://gw.test:81/v1/chat/completions", 400),
    "a user in the target": _target(b"http://user@gw.test/v1/chat/completions", 400),
    "a target without a host": _target(b"http:///v1/chat/completions", 400),
    "another scheme in the target": _target(b"ftp://gw.test/v1/chat/completions"),
    "a target that is no path": _target(b"v1/chat/completions", 400),
    "a target of two": _target(b"/v1/chat/completions /v1/embeddings", 400),
    "a zero byte in the path": _target(b"/v1/chat/completions%00"),
    "a raw zero byte in the path": _target(b"/v1/chat/completions\x00", 400),
    "a path through another": _target(b"/x/../v1/chat/completions"),
    "a path through another, escaped": _target(b"/x/%2e%2e/v1/chat/completions"),
    "a path with backslashes": _target(b"\\v1\\chat\\completions", 400),
    "an escaped path": _target(b"/v1/chat%2fcompletions"),
    "a path with parameters": _target(b"/v1/chat/completions;x=y"),
    "a doubled slash before nothing of ours": _target(b"//admin/config"),
    "CONNECT": Probe(b"CONNECT gw.test:80 HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN),
    "OPTIONS *": Probe(b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 404),
    "TRACE": Probe(LINE.replace(b"POST", b"TRACE") + HOST + b"\r\n", 405),
    "GET with a body": Probe(
        LINE.replace(b"POST", b"GET") + HOST + b"content-length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN, 405
    ),
}
BODIES = {
    "a gzip bomb": _body(b"content-encoding: gzip\r\n", BOMB, 415),
    "a deflated body": _body(b"content-encoding: deflate\r\n", zlib.compress(BODY), 415),
    "a body in br": _body(b"content-encoding: br\r\n", BODY, 415),
    "two content encodings": _body(b"content-encoding: identity, gzip\r\n", BODY, 415),
    "content encodings in two headers": _body(
        b"content-encoding: identity\r\ncontent-encoding: gzip\r\n", gzip.compress(BODY), 415
    ),
    "a body that is too large": _body(b"", b" " * 2**21, 413),
    "an expectation that is none": _body(b"expect: 200-ok\r\n", BODY, 417),
}
PROBES = LENGTHS_AND_CODINGS | CHUNK_TRICKS | HEADS | TARGETS | BODIES
