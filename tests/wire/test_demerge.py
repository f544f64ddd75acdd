"""A merged answer split into the answers of its members; answers to the parts of a list, joined."""

import json
from typing import Any

import pytest

from gateway.core.call import TokenUsage
from gateway.wire.openai.chat import CHAT
from gateway.wire.openai.completions import COMPLETIONS
from gateway.wire.openai.demerge import join, split
from gateway.wire.openai.embeddings import EMBEDDINGS

PUBLIC = b'"public"'


def vectors(*indices: int, **more: Any) -> bytes:
    """An answer with these indices, in this order."""
    data = [{"object": "embedding", "index": index, "embedding": [index / 8]} for index in indices]
    return json.dumps({"object": "list", "model": "up", "data": data, **more}).encode()


def single_member(answer: bytes, endpoint: str = EMBEDDINGS) -> Any:
    """The pieces for members of one item each, two of them."""
    return split(endpoint, answer, [1, 1], [[1], [1]], PUBLIC)


def test_batch_01_vectors_go_to_their_callers_by_index():
    parts = split(EMBEDDINGS, vectors(2, 0, 1), [1, 1, 1], [[1], [1], [1]], PUBLIC)
    assert parts is not None
    assert [json.loads(body) for body, _ in parts] == [
        {
            "object": "list",
            "model": "public",
            "data": [{"object": "embedding", "index": 0, "embedding": [at / 8]}],
        }
        for at in range(3)
    ]


def test_a_caller_with_a_list_gets_a_list_in_its_own_numbering():
    parts = split(EMBEDDINGS, vectors(3, 1, 2, 0), [1, 3], [[1], [1, 1, 1]], PUBLIC)
    assert parts is not None
    lists = [[(one["index"], one["embedding"]) for one in json.loads(body)["data"]] for body, _ in parts]
    assert lists == [[(0, [0.0])], [(0, [0.125]), (1, [0.25]), (2, [0.375])]]


def test_everything_but_list_model_id_and_usage_is_the_upstreams_own_bytes():
    answer = (
        b' { "id" : "embd-1" , "\\u006fbject":"list","created":7,'
        b'"data":[ {"index":1,"embedding":[ 1.0e-2, 2E+0 ]},'
        b'{"embedding":"AACA\\/w==","index" :0 , "x\\"y":null}],'
        b'"model":"up","x":{"b" : 1.10}, "usage" : null}\n'
    )
    assert single_member(answer) == [
        (
            b'{"id":"embd-1","object":"list","created":7,'
            b'"data":[{"embedding":"AACA\\/w==","index":0,"x\\"y":null}],'
            b'"model":"public","x":{"b" : 1.10},"usage":null}',
            None,
        ),
        (
            b'{"id":"embd-1-1","object":"list","created":7,"data":[{"index":0,"embedding":[ 1.0e-2, 2E+0 ]}],'
            b'"model":"public","x":{"b" : 1.10},"usage":null}',
            None,
        ),
    ]


def test_a_model_or_an_id_that_is_not_a_string_is_unchanged():
    bodies = [json.loads(body) for body, _ in single_member(vectors(0, 1, model=None, id=7))]
    assert [(body["model"], body["id"]) for body in bodies] == [(None, 7), (None, 7)]


def test_batch_10_usage_is_shared_by_estimated_tokens_and_sums_up():
    answer = vectors(0, 1, 2, usage={"prompt_tokens": 16, "total_tokens": 16})
    parts = split(EMBEDDINGS, answer, [1, 1, 1], [[3], [5], [8]], PUBLIC)
    assert parts is not None
    assert [json.loads(body)["usage"] for body, _ in parts] == [
        {"prompt_tokens": count, "total_tokens": count} for count in (3, 5, 8)
    ]
    assert [tokens for _, tokens in parts] == [TokenUsage(3), TokenUsage(5), TokenUsage(8)]


def chats(*texts: str, **more: Any) -> bytes:
    """An answer of vLLM to a list of conversations, last one first."""
    choices = [
        {
            "index": at,
            "message": {"role": "assistant", "content": text, "reasoning": None},
            "logprobs": None,
            "finish_reason": "length" if at else "stop",
        }
        for at, text in enumerate(texts)
    ]
    return json.dumps({"id": "c", "model": "up", "choices": choices[::-1], **more}).encode()


def test_texts_and_their_ends_go_to_their_callers_and_output_is_shared_by_length():
    usage = {
        "prompt_tokens": 30,
        "completion_tokens": 8,
        "total_tokens": 38,
        "prompt_tokens_details": {"cached_tokens": 16, "audio_tokens": None},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    answer = chats("a" * 30, "b" * 10, usage=usage, prompt_logprobs=None)
    parts = split(CHAT, answer, [1, 1], [[10], [20]], PUBLIC)
    assert parts is not None
    one, two = (json.loads(body) for body, _ in parts)
    assert [body["choices"][0]["message"]["content"][0] for body in (one, two)] == ["a", "b"]
    assert [body["choices"][0]["finish_reason"] for body in (one, two)] == ["stop", "length"]
    assert [body["choices"][0]["index"] for body in (one, two)] == [0, 0]
    assert [body["id"] for body in (one, two)] == ["c", "c-1"]
    assert one["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 6,
        "total_tokens": 16,
        "prompt_tokens_details": {"cached_tokens": 5, "audio_tokens": None},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    assert [tokens for _, tokens in parts] == [TokenUsage(10, 6, 5, 3), TokenUsage(20, 2, 11, 1)]


def test_hidden_reasoning_counts_as_output():
    answer = json.loads(chats("", "x", usage={"prompt_tokens": 2, "completion_tokens": 10, "total_tokens": 12}))
    answer["choices"][1]["message"] = {"content": None, "reasoning": "y" * 9}
    parts = split(CHAT, json.dumps(answer).encode(), [1, 1], [[1], [1]], PUBLIC)
    assert parts is not None
    assert [tokens.output for _, tokens in parts if tokens] == [9, 1]


def test_batch_16_logprobs_of_prompts_stay_as_they_are():
    logprobs = b'{"text_offset":[0, 4],"tokens":["a"],"top_logprobs":[{"a":-1e-05}]}'
    answer = (
        b'{"choices":[{"index":1,"text":"one","logprobs":null},'
        b'{"index":0,"text":"nil","logprobs":%b,"finish_reason":null}]}' % logprobs
    )
    parts = single_member(answer, COMPLETIONS)
    assert parts[0][0] == (b'{"choices":[{"index":0,"text":"nil","logprobs":%b,"finish_reason":null}]}' % logprobs)
    assert parts[1][0] == b'{"choices":[{"index":0,"text":"one","logprobs":null}]}'


@pytest.mark.parametrize(
    "answer",
    [
        *(vectors(0), vectors(1), vectors(0, 2), vectors(2, 1), vectors(1, 0, 0), vectors(0, 1, 1)),
        *(vectors(0, 1, 2), vectors(), vectors(0, 1, data=None), vectors(0, 1, data={}), b"[]", b"", b"null"),
        vectors(0, 1)[:-1],
        vectors(0, 1).replace(b"[0.125]", b"null"),
        vectors(0, 1).replace(b"[0.125]", b"{}"),
        vectors(0, 1).replace(b"[0.125]", b"7"),
        vectors(0, 1).replace(b'"embedding": [', b'"vector": ['),
        b'{"data":[' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
    ],
)
def test_an_answer_that_does_not_match_the_request_is_rejected(answer: bytes):
    assert single_member(answer) is None


LEFT_OUT = object()
IN_ORDER: list[list[Any]] = [
    [0, 1, 2, 3],
    [LEFT_OUT, 1, 2, 3],
    [None, 1, 2, 3],
    ["", 1, 2, 3],
    [LEFT_OUT] * 4,
    [None] * 4,
    [0] * 4,
    [-1] * 4,
    [7] * 4,
    [True] * 4,
    [{}] * 4,
    [1, 2, 3, 4],
    [40, 41, 42, 43],
    ["0", "1", "2", "3"],
    [0.0, 1.0, 2.0, 3.0],
    [0, 1, 0, 1],
    [LEFT_OUT, 1, LEFT_OUT, 1],
    [0, 1, 2, 0],
    [0, LEFT_OUT, 2, None],
    [0, True, 2, 3],
    ["a", "b", "c", "d"],
    [10**40] * 4,
]
BY_INDEX: list[list[Any]] = [
    [3, 2, 1, 0],
    ["3", "2", "1", "0"],
    [3, 2, 1, LEFT_OUT],
    [3.0, 2.0, 1.0, 0.0],
    [3, 2, 1, None],
]
DOUBTFUL: list[list[Any]] = [
    [0, 1, 1, 3],
    [0, 2, 3, 4],
    [4, 3, 2, 1],
    [3, 1, 2, 4],
    [0, 1, 3, 3],
    [2, LEFT_OUT, LEFT_OUT, 0],
    [0, 1, 2, 99],
    [1, 0, 2, -1],
]


def numbered(indexes: list[Any]) -> bytes:
    """Embeddings whose vectors are their places in the list."""
    items = [{"embedding": [at], **({} if one is LEFT_OUT else {"index": one})} for at, one in enumerate(indexes)]
    return json.dumps({"data": items, "usage": {"prompt_tokens": 4, "total_tokens": 4}}).encode()


@pytest.mark.parametrize("indexes", [*IN_ORDER, *BY_INDEX], ids=str)
def test_embeddings_whose_index_is_useless_are_in_order(indexes: list[Any]):
    places = [3, 2, 1, 0] if indexes in BY_INDEX else [0, 1, 2, 3]
    parts = split(EMBEDDINGS, numbered(indexes), [1, 2, 1], [[1], [1, 1], [1]], PUBLIC)
    assert parts is not None
    lists = [json.loads(body)["data"] for body, _ in parts]
    assert [item["embedding"] for items in lists for item in items] == [[place] for place in places]
    assert [[item["index"] for item in items] for items in lists] == [[0], [0, 1], [0]]
    joined = join(EMBEDDINGS, [numbered(indexes)] * 2, [0, 4], PUBLIC, 8)
    assert joined is not None
    data = json.loads(joined[0])["data"]
    assert [(item["index"], item["embedding"][0]) for item in data] == list(enumerate(places * 2))


@pytest.mark.parametrize("indexes", DOUBTFUL, ids=str)
def test_embeddings_whose_index_contradicts_their_order_are_rejected(indexes: list[Any]):
    assert split(EMBEDDINGS, numbered(indexes), [4], [[1] * 4], PUBLIC) is None


@pytest.mark.parametrize("index", [5, LEFT_OUT, None, "x", -3])
def test_an_only_embedding_needs_no_index(index: Any):
    assert split(EMBEDDINGS, numbered([index]), [1], [[1]], PUBLIC) is not None


@pytest.mark.parametrize("finish", ["error", "abort", "network_error"])
def test_a_choice_that_failed_is_rejected(finish: str):
    good = b'{"choices":[{"index":0,"text":"a","finish_reason":"stop"},{"index":1,"text":"b","finish_reason":"X"}]}'
    assert single_member(good, COMPLETIONS) is not None
    assert single_member(good.replace(b"X", finish.encode()), COMPLETIONS) is None
    assert single_member(good.replace(b'"index":1', b'"index":1,"error":{"code":500}'), COMPLETIONS) is None


@pytest.mark.parametrize(
    "answer",
    [
        b'{"choices":[{"index":0,"text":"a"},{"index":1,"text":null}]}',
        b'{"choices":[{"index":0,"text":"a"},{"index":1,"text":["b"]}]}',
        b'{"data":[{"index":0,"text":"a"},{"index":1,"text":"b"}]}',
    ],
)
def test_a_choice_without_text_is_rejected(answer: bytes):
    assert single_member(answer, COMPLETIONS) is None
    assert single_member(answer.replace(b"text", b"message"), CHAT) is None


@pytest.mark.parametrize("name", ["prompt_logprobs", "prompt_token_ids", "prompt_text", "kv_transfer_params"])
def test_data_about_a_single_prompt_never_reaches_another_caller(name: str):
    answer = chats("a", "b", **{name: ["secret"]})
    assert single_member(answer, CHAT) is None
    single = split(CHAT, chats("a", **{name: ["secret"]}), [1], [[1]], PUBLIC)
    assert single is not None
    assert json.loads(single[0][0])[name] == ["secret"]


@pytest.mark.parametrize(
    "answer",
    [
        b'{"object":"data","x":[{"index":0,"embedding":[9]},{"index":1,"embedding":[9]}],"data":LIST}',
        b'{"data":LIST,"object":"data","x":[{"index":0,"embedding":[9]},{"index":1,"embedding":[9]}]}',
        b'{"x":{"data":[{"index":0,"embedding":[9]},{"index":1,"embedding":[9]}]},"data":LIST}',
        b'{"data":[{"index":0,"embedding":[9]},{"index":1,"embedding":[9]}],"data":LIST}',
        b'{"d\\u0061ta":LIST,"object":"data","x":[{"index":0,"embedding":[9]},{"index":1,"embedding":[9]}]}',
        b'{"data":[],"d\\u0061ta":LIST}',
        b'{"note":"\\"data\\":[","data":LIST,"end":"]"}',
    ],
)
def test_the_list_is_the_member_of_that_name_wherever_it_stands(answer: bytes):
    listed = b'[{"index":1,"embedding":[2]},{"index":0,"embedding":[1]}]'
    parts = single_member(answer.replace(b"LIST", listed))
    assert [json.loads(body)["data"][0]["embedding"] for body, _ in parts] == [[1], [2]]


def test_batch_09_answers_to_parts_are_joined_in_the_clients_numbering():
    parts = [range(1023, -1, -1), range(236)]
    answers = [
        vectors(*part, id=f"e{at}", usage={"prompt_tokens": len(part), "total_tokens": len(part)})
        for at, part in enumerate(parts)
    ]
    joined = join(EMBEDDINGS, answers, [0, 1024], PUBLIC, 1260)
    assert joined is not None
    body, tokens = json.loads(joined[0]), joined[1]
    assert [one["index"] for one in body["data"]] == list(range(1260))
    assert [one["embedding"] for one in body["data"]] == [[at % 1024 / 8] for at in range(1260)]
    assert (body["id"], body["model"]) == ("e0", "public")
    assert body["usage"] == {"prompt_tokens": 1260, "total_tokens": 1260}
    assert tokens == TokenUsage(1260)


def test_usage_of_parts_is_summed_member_by_member():
    usages: list[Any] = [
        {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}, "note": "a"},
        {"prompt_tokens": 4, "prompt_tokens_details": None, "completion_tokens": 2, "note": "b"},
        None,
        {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2}},
    ]
    joined = join(EMBEDDINGS, [vectors(0, usage=one) for one in usages], [0, 1, 2, 3], PUBLIC, 4)
    assert joined is not None
    assert json.loads(joined[0])["usage"] == {
        "prompt_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 3},
        "note": "a",
        "completion_tokens": 2,
    }
    assert joined[1] == TokenUsage(12, 2, 3)


def test_parts_without_usage_have_no_usage():
    joined = join(EMBEDDINGS, [vectors(0), vectors(0)], [0, 1], PUBLIC, 2)
    assert joined is not None
    assert "usage" not in json.loads(joined[0])
    assert joined[1] is None


@pytest.mark.parametrize("broken", [vectors(0), vectors(0, 2), vectors(0, 1, 2), b"{}"])
def test_one_part_that_does_not_fit_spoils_the_list(broken: bytes):
    good = vectors(1, 0)
    assert join(EMBEDDINGS, [good, good], [0, 2], PUBLIC, 4) is not None
    assert join(EMBEDDINGS, [good, broken], [0, 2], PUBLIC, 4) is None
    assert join(EMBEDDINGS, [broken, good], [0, 2], PUBLIC, 4) is None
