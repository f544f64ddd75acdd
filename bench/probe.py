"""One call per scenario and contender is read in full; every later answer must then be as long as it was."""

import http.client
import json

from bench import upstream
from bench.scenarios import Scenario


def head(scenario: Scenario, model: str, key: str, port: int) -> bytes:
    """The whole request as it goes over the wire, head and body."""
    body = scenario.body(model)
    lines = [
        "POST /v1/chat/completions HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "User-Agent: sluice-bench",
        "Accept: application/json",
        "Content-Type: application/json",
        f"Authorization: Bearer {key}",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def expected_size(scenario: Scenario, model: str, key: str, port: int) -> int:
    """Bytes of a right answer's body as this contender writes it. Raises RuntimeError for a wrong one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    # The probe's stream is not paced: its bytes are the same, and nobody wants to wait for them.
    connection.request(
        "POST",
        "/v1/chat/completions",
        scenario.body(model).replace(f"pace={round(scenario.pace * 1000)}ms".encode(), b"pace=0ms"),
        headers,
    )
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{scenario.name}: status {answer.status}: {body[:300]!r}")
    if not scenario.chunks:
        right = json.loads(body)["choices"][0]["message"]["content"] == upstream.TEXT
    else:
        events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
        deltas = [json.loads(data)["choices"][0]["delta"] for data in events if data != b"[DONE]"]
        text = "".join(delta.get("content") or "" for delta in deltas)
        right = text == upstream.WORD * (scenario.chunks - 1) and events[-1] == b"[DONE]"
    if not right:
        raise RuntimeError(f"{scenario.name}: not the upstream's answer: {body[:300]!r}")
    return len(body)
