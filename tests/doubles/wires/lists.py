"""An upstream of the endpoints that judge texts: rerank, score, pooling, classify, tokenize, moderations."""

from typing import Any, Final

from doubles import replies
from doubles.call import Call
from doubles.script import Script, compact, full
from doubles.wires.streams import Event

_CATEGORIES: Final = (
    *("hate", "hate/threatening", "harassment", "harassment/threatening", "illicit", "illicit/violent"),
    *("self-harm", "self-harm/intent", "self-harm/instructions", "sexual", "sexual/minors"),
    *("violence", "violence/graphic"),
)


def usage(*texts: Any) -> Event:
    """A token for each character, as this engine counts."""
    count = sum(len(str(text)) for text in texts)
    return {"prompt_tokens": count, "total_tokens": count, "completion_tokens": 0, "prompt_tokens_details": None}


def rerank(request: Event) -> Event:
    """The documents by their length, longest first."""
    documents = request["documents"]
    ranked = sorted(range(len(documents)), key=lambda at: -len(documents[at]))[: request.get("top_n")]
    results = [
        {"index": at, "document": {"text": documents[at]}, "relevance_score": 1 / (rank + 1)}
        for rank, at in enumerate(ranked)
    ]
    counted = usage(request["query"], *documents)
    return {"id": "rerank-1", "model": request["model"], "usage": counted, "results": results}


def score(request: Event) -> Event:
    """A number for each second text."""
    others = _listed(request["text_2"])
    return _list(request, [{"object": "score", "score": len(text) / 8} for text in others], others)


def pooling(request: Event) -> Event:
    """A vector for each input."""
    inputs = _listed(request["input"])
    return _list(request, [{"object": "pooling", "data": [0.25, -0.5]} for _ in inputs], inputs)


def classify(request: Event) -> Event:
    """The same label for each input."""
    inputs = _listed(request["input"])
    labels = [{"label": "LABEL_0", "probs": [0.75, 0.25], "num_classes": 2} for _ in inputs]
    return _list(request, labels, inputs)


def tokenize(request: Event) -> Event:
    """A token for each character."""
    tokens = [ord(letter) for letter in request.get("prompt", "chat")]
    return {"count": len(tokens), "max_model_len": 4096, "tokens": tokens, "token_strs": None}


def detokenize(request: Event) -> Event:
    """The characters of the tokens."""
    return {"prompt": "".join(map(chr, request["tokens"]))}


def moderations(request: Event) -> Event:
    """Nothing is flagged."""
    result = {
        "flagged": False,
        "categories": dict.fromkeys(_CATEGORIES, False),
        "category_scores": dict.fromkeys(_CATEGORIES, 0.0),
        "category_applied_input_types": {name: ["text"] for name in _CATEGORIES},
    }
    return {"id": "modr-1", "model": request["model"], "results": [result for _ in _listed(request["input"])]}


ANSWERS: Final = {
    "rerank": rerank,
    "score": score,
    "pooling": pooling,
    "classify": classify,
    "tokenize": tokenize,
    "detokenize": detokenize,
    "moderations": moderations,
}


def answer(call: Call) -> Script:
    """The steps for a call of one of these endpoints."""
    made = ANSWERS.get(call.target.partition("?")[0].rpartition("/")[2])
    return replies.error(404, "Not Found") if made is None else [full(compact(made(call.json())))]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _list(request: Event, data: list[Event], texts: list[Any]) -> Event:
    numbered = [{"index": at, **each} for at, each in enumerate(data)]
    about: Event = {"id": "list-1", "object": "list", "created": 1, "model": request["model"]}
    return {**about, "data": numbered, "usage": usage(*texts)}
