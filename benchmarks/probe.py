"""One call per scenario and contender is read in full; every later answer must have the same length."""

import http.client
import json
from itertools import count

from benchmarks.contender import Contender
from benchmarks.fake_upstream import TEXT, WORD
from benchmarks.scenarios import NUMBER, Scenario

numbers = count(1)  # of all the calls of this process


def number() -> bytes:
    """A number that makes the next call unique, as long as `NUMBER`."""
    return b"%0*d" % (len(NUMBER), next(numbers))


def request(scenario: Scenario, contender: Contender) -> tuple[bytes, bytes]:
    """The request as it goes over the wire, before and after its number."""
    body = scenario.body(contender.model)
    lines = [
        "POST /v1/chat/completions HTTP/1.1",
        f"Host: 127.0.0.1:{contender.port}",
        "User-Agent: sluice-bench",
        "Accept: application/json",
        *(f"{name}: {value}" for name, value in _headers(contender).items()),
        f"Content-Length: {len(body)}",
    ]
    before, _, after = body.rpartition(NUMBER)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + before, after


def _headers(contender: Contender) -> dict[str, str]:
    known = {"Content-Type": "application/json", "Authorization": f"Bearer {contender.key}"}
    return known | contender.headers()


def expected_size(scenario: Scenario, contender: Contender) -> int:
    """The size of a correct answer's body from this contender. Raises RuntimeError for a wrong one."""
    connection = http.client.HTTPConnection("127.0.0.1", contender.port, timeout=30)
    # The probe's stream is not paced: its bytes are the same, and nobody wants to wait for them.
    paced = f"pace={round(scenario.pace * 1000)}ms".encode()
    body = scenario.body(contender.model).replace(paced, b"pace=0ms").replace(NUMBER, number())
    connection.request("POST", "/v1/chat/completions", body, _headers(contender))
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{scenario.name}: status {answer.status}: {body[:300]!r}")
    if not scenario.chunks:
        right = json.loads(body)["choices"][0]["message"]["content"] == TEXT
    else:
        events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
        deltas = [json.loads(data)["choices"][0]["delta"] for data in events if data != b"[DONE]"]
        text = "".join(delta.get("content") or "" for delta in deltas)
        right = text == WORD * (scenario.chunks - 1) and events[-1] == b"[DONE]"
    if not right:
        raise RuntimeError(f"{scenario.name}: not the upstream's answer: {body[:300]!r}")
    return len(body)
