"""Whatever is merged: everybody gets what a call of its own would have got, and never somebody else's."""

import json
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kit.pieces import examples, member, string, values
from merging import ENDPOINTS, LISTS, MOST, PARAMS, PAYLOADS, Json, body_of, groups, payloads, upstream

from gateway.wire.openai import demerge, merge
from gateway.wire.openai.completions import COMPLETIONS
from gateway.wire.openai.embeddings import EMBEDDINGS
from gateway.wire.openai.usage_split import shares


def merged(endpoint: str, bodies: list[bytes]) -> tuple[list[merge.Mergeable], bytes]:
    """What was read of them, and the body of the one call that carries all."""
    parsed = [found for body in bodies if (found := merge.parse(body, endpoint, MOST)) is not None]
    assert len(parsed) == len(bodies)
    assert len({one.key for one in parsed}) == 1
    items = [item for one in parsed for item in one.items]
    return parsed, merge.build(endpoint, parsed[0], b'"up"', items)[1]


def split(endpoint: str, parsed: list[merge.Mergeable], answer: bytes) -> Any:
    counts, weights = [len(one.items) for one in parsed], [one.weights for one in parsed]
    return demerge.split(endpoint, answer, counts, weights, b'"public"')


def without_usage(answer: Json) -> Json:
    return {**answer, "usage": sorted(answer["usage"]), "id": "", "model": ""}


@examples(150)
@given(groups(), st.data())
def test_everybody_gets_what_a_call_of_its_own_would_have_got(group: tuple[str, list[bytes]], data: Any):
    endpoint, bodies = group
    parsed, body = merged(endpoint, bodies)
    answer = upstream(endpoint, body, batch_chat=True)
    usage = answer["usage"]
    answer[LISTS[endpoint]] = data.draw(st.permutations(answer[LISTS[endpoint]]))
    parts = split(endpoint, parsed, json.dumps(answer).encode())
    told = [json.loads(part) for part, _ in parts]
    for theirs, own in zip(told, bodies, strict=True):
        assert without_usage(theirs) == without_usage(upstream(endpoint, own))
        assert list(theirs) == list(answer)
        assert theirs["model"] == "public"
    assert len({theirs["id"] for theirs in told}) == len(told)
    counts = [one["usage"] for one in told]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert sum(one.get(name, 0) for one in counts) == usage.get(name, 0)
    for one, (_, tokens) in zip(counts, parts, strict=True):
        assert one["prompt_tokens"] >= 1
        assert one["total_tokens"] == one["prompt_tokens"] + one.get("completion_tokens", 0)
        assert one["prompt_tokens_details"]["cached_tokens"] <= one["prompt_tokens"]
        assert (tokens.input, tokens.output) == (one["prompt_tokens"], one.get("completion_tokens", 0))
    assert sum(tokens.cached_input for _, tokens in parts) == usage["prompt_tokens_details"]["cached_tokens"]
    reasoned = usage.get("completion_tokens_details", {}).get("reasoning_tokens", 0)
    assert sum(tokens.reasoning for _, tokens in parts) == reasoned


@examples(150)
@given(groups())
def test_one_call_carries_all_payloads_byte_for_byte_and_the_members_own_parameters(
    group: tuple[str, list[bytes]],
):
    endpoint, bodies = group
    parsed, body = merged(endpoint, bodies)
    sent = json.loads(body)
    items = sent.pop(PAYLOADS[endpoint])
    assert items == [json.loads(item) for one in parsed for item in one.items]
    assert all(item in own for one, own in zip(parsed, bodies, strict=True) for item in one.items)
    for own in bodies:
        asked = {name: value for name, value in json.loads(own).items() if name != "stream"}
        payload = asked.pop(PAYLOADS[endpoint])
        assert json.dumps(asked, sort_keys=True) == json.dumps(sent, sort_keys=True)
        assert payload in (items, *items) or all(one in items for one in payload)


@examples(150)
@given(ENDPOINTS, st.data())
def test_only_equal_requests_have_the_same_key(endpoint: str, data: Any):
    payload = data.draw(payloads(endpoint, "text"))
    bodies = []
    for _ in range(2):
        params = data.draw(PARAMS) | {"max_tokens": data.draw(st.integers(7, 8))}
        bodies.append(data.draw(body_of(endpoint, params, payload)))
    one, other = (merge.parse(body, endpoint, MOST) for body in bodies)
    assert one is not None
    assert other is not None
    asked = [json.dumps(json.loads(body) | {"stream": False}, sort_keys=True) for body in bodies]
    assert (one.key == other.key) == (asked[0] == asked[1])


def _drop(items: list[Json], at: int, _: int) -> Any:
    return items[:at] + items[at + 1 :]


def _double(items: list[Json], at: int, _: int) -> Any:
    return [*items, items[at]]


def _twice(items: list[Json], at: int, other: int) -> Any:
    return [*items[:at], {**items[other], "index": items[at]["index"]}, *items[at + 1 :], items[at]]


def _renumber(items: list[Json], at: int, other: int) -> Any:
    return [{**item, "index": other} if place == at else item for place, item in enumerate(items)]


def _surplus(items: list[Json], at: int, _: int) -> Any:
    return [*items, {**items[at], "index": len(items)}]


def _retype(items: list[Json], at: int, other: int) -> Any:
    index = [str(at), float(at), None, True, -1, [at], {}][other % 7]
    return [{**item, "index": index} if place == at else item for place, item in enumerate(items)]


def _empty(items: list[Json], at: int, other: int) -> Any:
    hollow = [{"index": at}, None, [], 3, "x"][other % 5]
    return [hollow if place == at else item for place, item in enumerate(items)]


def _no_list(items: list[Json], at: int, other: int) -> Any:
    return [None, {}, "x", 3, items[at], {"0": items}][other % 6]


DAMAGES = st.sampled_from([_drop, _double, _twice, _renumber, _surplus, _retype, _empty, _no_list])


@examples(150)
@given(groups(), DAMAGES, st.integers(0, 20), st.integers(0, 40))
def test_a_damaged_answer_is_not_used_unless_the_damage_changes_nothing(
    group: tuple[str, list[bytes]], damage: Callable[..., Any], place: int, other: int
):
    endpoint, bodies = group
    parsed, body = merged(endpoint, bodies)
    answer = upstream(endpoint, body, batch_chat=True)
    items = answer[LISTS[endpoint]]
    place %= len(items)
    hurt = damage(items, place, other % len(items) if damage is _twice else other)
    parts = split(endpoint, parsed, json.dumps({**answer, LISTS[endpoint]: hurt}).encode())
    good = split(endpoint, parsed, json.dumps(answer).encode())
    if json.dumps(hurt) == json.dumps(items):
        assert parts == good
    elif endpoint == EMBEDDINGS and damage in (_renumber, _retype):  # the list is still in order
        assert parts in (None, good)
    else:
        assert parts is None


@examples(150)
@given(groups(), st.integers(0, 10**6), st.integers(0, 255), st.booleans())
def test_a_broken_byte_gives_nobody_the_answer_of_another(
    group: tuple[str, list[bytes]], place: int, byte: int, cut: bool
):
    endpoint, bodies = group
    parsed, body = merged(endpoint, bodies)
    answer = upstream(endpoint, body, batch_chat=True)
    text = json.dumps(answer).encode()
    place %= len(text)
    text = text[:place] if cut else text[:place] + bytes([byte]) + text[place + 1 :]
    parts = split(endpoint, parsed, text)
    if parts is None:
        return
    marks = [json.dumps(item.get("embedding") or item["stop_reason"]) for item in answer[LISTS[endpoint]]]
    counts = [len(one.items) for one in parsed]
    for (part, _), start, count in zip(parts, accumulate(counts, initial=0), counts, strict=False):
        own = marks[start : start + count]
        assert not any(mark.encode() in part for mark in marks if mark not in own)


@examples(100)
@given(st.lists(st.text(max_size=6), min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 8), st.data())
def test_a_long_list_in_parts_is_answered_as_one(texts: list[str], most: int, tokens: int, data: Any):
    endpoint = data.draw(st.sampled_from([EMBEDDINGS, COMPLETIONS]))
    body = data.draw(body_of(endpoint, data.draw(PARAMS), texts))
    parsed = merge.parse(body, endpoint, MOST)
    assert parsed is not None
    slices = merge.split_list(parsed.items, parsed.weights, most, tokens)
    assert [at for one in slices for at in range(one.start, one.stop)] == list(range(len(texts)))
    answers = []
    for one in slices:
        count, weight = one.stop - one.start, sum(parsed.weights[one])
        assert count == 1 or (count <= most and weight <= tokens)
        part = upstream(endpoint, merge.build(endpoint, parsed, b'"up"', parsed.items[one])[1])
        part[LISTS[endpoint]].reverse()
        answers.append(json.dumps(part).encode())
    offsets = [one.start for one in slices]
    joined = demerge.join(endpoint, answers, offsets, b'"public"', len(texts))
    assert joined is not None
    whole = upstream(endpoint, body)
    assert without_usage(json.loads(joined[0])) == without_usage(whole)
    usage = json.loads(joined[0])["usage"]
    assert usage["total_tokens"] == whole["usage"]["total_tokens"]
    assert joined[1] is not None
    assert joined[1].input == whole["usage"]["prompt_tokens"]
    assert demerge.join(endpoint, answers, offsets, b'"public"', len(texts) + 1) is None


NAMES = st.sampled_from(
    [
        *("model", "input", "prompt", "messages", "max_tokens", "n", "stream", "tools", "data", "choices"),
        *("usage", "index", "embedding", "text", "message", "id", "prompt_tokens"),
    ]
)


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    """Objects with the names that are looked at, holding anything; sometimes not even JSON."""
    inner = st.lists(st.tuples(NAMES, values()), max_size=4)
    one = "{" + ",".join([draw(member(name, value)) for name, value in draw(inner)]) + "}"
    valued = st.sampled_from([one, f"[{one}]", "[[1]]", '["a"]', '[""]', "[1e999]", "1e999", "-0", "9" * 30])
    pairs = [(name, draw(valued | values())) for name in draw(st.lists(NAMES, max_size=6))]
    text = ("{" + ",".join([draw(member(name, value)) for name, value in pairs]) + "}").encode()
    place = draw(st.integers(0, len(text)))
    return draw(st.sampled_from([text, text, text[:place], text[:place] + b"\xff" + text[place:]]))


@examples(250)
@given(hostile(), ENDPOINTS, st.integers(1, 3))
def test_nothing_raises(text: bytes, endpoint: str, count: int):
    found = merge.parse(text, endpoint, MOST)
    if found is not None:
        assert len(found.items) == len(found.weights) >= 1
        json.loads(merge.build(endpoint, found, b'"m"', found.items)[1].decode("utf-8", "replace"))
    demerge.split(endpoint, text, [1] * count, [[1]] * count, b'"m"')
    demerge.join(endpoint, [text], [0], b'"m"', 1)


@examples(150)
@given(values(), st.lists(st.integers(0, 99), min_size=1, max_size=5))
def test_any_usage_is_tolerated(usage: str, sizes: list[int]):
    data = [{"index": at, "embedding": [at]} for at in range(len(sizes))]
    for block in (usage, '{"prompt_tokens":%s,"prompt_tokens_details":%s,"x":1}' % (usage, usage)):  # noqa: UP031
        text = f'{{"data":{json.dumps(data)},"usage":{block}}}'.encode()
        parts = demerge.split(EMBEDDINGS, text, [1] * len(sizes), [[size] for size in sizes], b'"m"')
        assert parts is not None
        assert [json.loads(part)["data"][0]["embedding"] for part, _ in parts] == [[at] for at in range(len(sizes))]
        assert all(tokens is None or tokens.input >= 0 for _, tokens in parts)


@examples(150)
@given(st.integers(0, 10**9), st.lists(st.integers(0, 10**6), min_size=1, max_size=40), st.integers(0, 1))
def test_shares_are_whole_fair_and_sum_up(total: int, weights: list[int], least: int):
    out = shares(total, weights, least)
    assert sum(out) == total
    assert min(out) >= (least if total >= len(weights) else 0)
    plain = shares(total, weights)
    whole = sum(weights)
    if whole:
        assert all(abs(share * whole - total * weight) < whole for share, weight in zip(plain, weights, strict=True))
        assert shares(whole, weights) == weights


@examples(100)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.data())
def test_the_weight_of_a_text_hardly_depends_on_how_it_is_spelled(text: str, data: Any):
    plain = json.dumps(text, ensure_ascii=False).encode()
    other = data.draw(string(text)).encode()
    bodies = [b'{"model":"m","input":%b}' % spelled for spelled in (plain, other)]
    parsed = [merge.parse(body, EMBEDDINGS, MOST) for body in bodies]
    one, two = (found.weights[0] for found in parsed if found is not None)
    assert two <= 3 * one + 2
    assert one <= 3 * two + 2
