"""Bodies that differ only in their payload, and an upstream with predictable answers."""

import base64
import json
import zlib
from typing import Any

from hypothesis import strategies as st
from kit.pieces import TEXTS

from gateway.wire.openai.chat import CHAT
from gateway.wire.openai.completions import COMPLETIONS
from gateway.wire.openai.embeddings import EMBEDDINGS

PAYLOADS = {EMBEDDINGS: "input", COMPLETIONS: "prompt", CHAT: "messages"}
LISTS = {EMBEDDINGS: "data", COMPLETIONS: "choices", CHAT: "choices"}
ENDPOINTS = st.sampled_from(list(PAYLOADS))
MOST = 64

Json = dict[str, Any]


def fingerprint(item: Any, params: Json) -> int:
    return zlib.crc32(json.dumps([item, params], sort_keys=True).encode())


def one_answer(endpoint: str, item: Any, params: Json) -> Json:
    mark = fingerprint(item, params)
    if endpoint == EMBEDDINGS:
        vector: Any = [mark / 7, -float(mark), mark % 5]
        if params.get("encoding_format") == "base64":
            vector = base64.b64encode(str(mark).encode()).decode()
        return {"object": "embedding", "embedding": vector}
    text = f'"{mark}" \u00e9\\ ' + "so " * (mark % 7)
    logprobs = {"tokens": [str(mark)], "content": None} if params.get("logprobs") else None
    finish = {"finish_reason": ("stop", "length")[mark % 2], "stop_reason": mark, "logprobs": logprobs}
    if endpoint == CHAT:
        return {"message": {"role": "assistant", "content": text, "reasoning": None}, **finish}
    return {"text": text, **finish}


def tokens_of(endpoint: str, item: Any, params: Json) -> tuple[int, int]:
    mark = fingerprint(item, params)
    return mark % 50 + 1, 0 if endpoint == EMBEDDINGS else mark % 9 + 1


def upstream(endpoint: str, body: bytes, *, batch_chat: bool = False) -> Json:
    """The answer to this body: depends on each item and all parameters, and on nothing else.

    `batch_chat`: the body holds a list of conversations.
    """
    params = json.loads(body)
    assert params.pop("model") == "up"
    params.pop("stream", None)
    items = params.pop(PAYLOADS[endpoint])
    single = not isinstance(items, list) or (items and isinstance(items[0], int))
    if single or (endpoint == CHAT and not batch_chat):
        items = [items]
    listed = [{"index": at, **one_answer(endpoint, item, params)} for at, item in enumerate(items)]
    counts = [tokens_of(endpoint, item, params) for item in items]
    prompt, output = (sum(column) for column in zip(*counts, strict=True))
    usage: Json = {"prompt_tokens": prompt, "total_tokens": prompt + output}
    usage["prompt_tokens_details"] = {"cached_tokens": prompt // 2}
    if endpoint != EMBEDDINGS:
        usage |= {
            "completion_tokens": output,
            "completion_tokens_details": {"reasoning_tokens": output // 3},
        }
    answer = {"id": "id-1", "object": "answer", "created": 7, "model": "up", "x": {"y": [1.0]}}
    return {**answer, LISTS[endpoint]: listed, "usage": usage}


def ids() -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 99999), min_size=1, max_size=4)


def payloads(endpoint: str, kind: str) -> st.SearchStrategy[Any]:
    if endpoint == CHAT:
        turn = st.builds(lambda text: {"role": "user", "content": text, "n": 2}, TEXTS)
        return st.lists(turn, min_size=1, max_size=3)
    one: st.SearchStrategy[Any] = TEXTS if kind == "text" else ids()
    return one | st.lists(one, min_size=1, max_size=4)


PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "encoding_format": st.sampled_from(["float", "base64"]),
        "dimensions": st.sampled_from([256, 512]),
        "user": TEXTS,
        "temperature": st.sampled_from([0, 0.0, 1, 0.5]),
        "logprobs": st.sampled_from([1, 5, True, False]),
        "stop": st.lists(TEXTS, max_size=2),
        "x_unknown": st.sampled_from([None, {"b": [1], "a": 1.0}]),
    },
)


@st.composite
def body_of(draw: st.DrawFn, endpoint: str, params: Json, payload: Any) -> bytes:
    """These members in any order and spacing; their values in one spelling, as one client has them."""
    pairs = [*params.items(), (PAYLOADS[endpoint], payload), ("model", "up")]
    if draw(st.booleans()):
        pairs.append(("stream", False))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    spelled = {name: json.dumps(value, separators=separators) for name, value in draw(st.permutations(pairs))}
    members = [f'"{name}"{separators[1]}{value}' for name, value in spelled.items()]
    return ("{" + separators[0].join(members) + "}").encode()


@st.composite
def groups(draw: st.DrawFn) -> tuple[str, list[bytes]]:
    """An endpoint, and bodies of one group."""
    endpoint = draw(ENDPOINTS)
    params = draw(PARAMS)
    if endpoint == CHAT or (endpoint == COMPLETIONS and draw(st.booleans())):
        params["max_tokens"] = draw(st.integers(1, MOST))
    kind = draw(st.sampled_from(["text", "ids"]))
    chosen = draw(st.lists(payloads(endpoint, kind), min_size=1, max_size=6))
    return endpoint, [draw(body_of(endpoint, params, payload)) for payload in chosen]
