"""What the inspector keeps: bounded in calls and in bytes, nothing of a client's credentials, headers or body."""

import gc
from types import FunctionType, ModuleType
from typing import Any

import pytest
from kit.calls import make_call, make_route

from gateway.core.call import Credentials, FailedAttempt
from gateway.core.errors import UPSTREAM_ERROR, Rejection
from gateway.inspector.bodies import LONGEST_BODY, Bodies, BodyMask
from gateway.inspector.finished_call import BYTES, LONGEST_TEXT
from gateway.inspector.inspector import CallPage, Inspector


def inspector(calls: int = 3, max_bytes: int = 10**6, **more: Any) -> Inspector:
    made = Inspector(lambda: 100.0, lambda: 1_700_000_100.0)
    made.apply(calls, max_bytes, bodies=False, **more)
    return made


def ids(of: Inspector, **query: str) -> list[str]:
    page = of.page(query)
    assert isinstance(page, CallPage)
    return [call.id for call in page.calls]


def test_the_oldest_call_goes_when_there_are_too_many():
    one = inspector(calls=3)
    for number in range(5):
        one.keep(make_call(request_id=str(number)), 10.0 + number)
    assert ids(one) == ["4", "3", "2"]
    assert one.details("1") is None


def test_the_oldest_calls_go_when_they_take_too_many_bytes():
    one = inspector(calls=100, max_bytes=3 * BYTES)
    for number in range(3):
        one.keep(make_call(request_id=str(number)), 10.0 + number)
    assert ids(one) == ["2", "1", "0"]
    failures = (FailedAttempt("up", "m", "connect", "x" * 400),)
    one.keep(make_call(request_id="failed", failures=failures), 20.0)
    assert ids(one) == ["failed", "2"]


def test_a_call_larger_than_all_room_is_not_kept():
    one = inspector(calls=100, max_bytes=BYTES - 1)
    one.keep(make_call(), 1.0)
    assert ids(one) == []


def test_a_reload_with_smaller_bounds_drops_at_once():
    one = inspector(calls=3)
    for number in range(3):
        one.keep(make_call(request_id=str(number)), 10.0 + number)
    one.apply(1, 10**6, bodies=False)
    assert ids(one) == ["2"]


def test_nothing_of_the_head_and_the_body_stays_in_memory():
    one, call = inspector(), make_call(body=b'{"prompt": "secret-in-the-body"}')
    call.request.headers = {"cookie": "secret-in-a-header"}
    call.request.credentials = Credentials("Bearer secret-in-the-key", None, None)
    one.keep(call, 1.0)
    seen: set[int] = set()
    todo: list[object] = [one._ring]
    while todo:
        item = todo.pop()
        if id(item) not in seen and not isinstance(item, type | FunctionType | ModuleType):
            seen.add(id(item))
            fields = [getattr(item, name) for name in getattr(item, "__struct_fields__", ())]
            todo += [*fields, *gc.get_referents(item)]
            assert not (isinstance(item, str | bytes) and len(item) < 500 and "secret-in" in str(item))


def test_long_texts_of_others_are_cut():
    one = inspector()
    error = Rejection(UPSTREAM_ERROR, "x" * 10_000, details={"huge": ["y"] * 10_000})
    one.keep(make_call(model="m" * 10_000, error=error), 1.0)
    details = one.details("id")
    assert details is not None
    assert details.call.error is not None
    assert len(details.call.error.message) == len(details.call.summary.model) == LONGEST_TEXT


def test_the_logged_sentence_is_shown_in_place_of_an_upstreams_words():
    one = inspector()
    error = Rejection(UPSTREAM_ERROR, "your prompt was: secret", logged="Upstream `up` answered 500.")
    one.keep(make_call(error=error), 1.0)
    details = one.details("id")
    assert details is not None
    assert details.call.error is not None
    assert details.call.error.message == "Upstream `up` answered 500."


def test_the_call_under_way_comes_before_those_that_ended_with_its_id():
    one = inspector()
    one.keep(make_call(status=500, outcome="internal_error"), 1.0)
    one.live = lambda: [make_call(now=99.0)]
    details = one.details("id")
    assert details is not None
    assert details.call.summary.live
    assert details.others == 1
    assert details.call.summary.total_ms == 1000.0
    assert details.why == ["It is under way."]
    page = one.page({})
    assert isinstance(page, CallPage)
    assert [call.id for call in page.live] == ["id"]


def test_pages_follow_each_other_without_gaps_or_repeats():
    one = inspector(calls=50)
    for number in range(12):
        one.keep(make_call(request_id=str(number)), 10.0)  # all at one moment
    seen, before = [], ""
    while True:
        page = one.page({"limit": "5", "before": before})
        assert isinstance(page, CallPage)
        seen += [call.id for call in page.calls]
        if page.next is None:
            break
        before = page.next
    assert seen == [str(number) for number in reversed(range(12))]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"status": "429"}, ["limited"]),
        ({"status": "4xx"}, ["limited"]),
        ({"status": "5xx"}, []),
        ({"outcome": "ok"}, ["fine"]),
        ({"model": "m"}, ["fine"]),
        ({"model": "other"}, ["limited"]),
        ({"slow": "2s"}, ["fine"]),
        ({"slow": "500ms"}, ["limited", "fine"]),
        ({"upstream": "local"}, ["fine"]),
        ({"key": "nobody"}, []),
        ({"model": "", "unknown": "x"}, ["limited", "fine"]),
    ],
)
def test_filters(query: dict[str, str], found: list[str]):
    one = inspector()
    fine = make_call(request_id="fine", route=make_route(), status=200, outcome="ok", attempts=1)
    one.keep(fine, 3.0)
    one.keep(make_call(now=3.0, request_id="limited", model="other", status=429, outcome="limited"), 4.0)
    assert ids(one, **query) == found


@pytest.mark.parametrize(
    "query", [{"status": "x"}, {"status": "9xx"}, {"limit": "0"}, {"limit": "501"}, {"slow": "-1"}, {"before": "<b>"}]
)
def test_a_parameter_that_means_nothing_is_named(query: dict[str, str]):
    answer = inspector().page(query)
    assert isinstance(answer, dict)
    assert next(iter(query)) in answer["error"]


def test_bodies_are_bounded():
    bodies = Bodies.of(b"x" * (LONGEST_BODY + 1))
    for _ in range(3):
        bodies.answer(b"y" * LONGEST_BODY)
    assert bodies.request_cut
    assert len(bodies.request) == LONGEST_BODY
    assert sum(map(len, bodies.pieces)) == LONGEST_BODY
    assert bodies.answered == 3 * LONGEST_BODY


def test_bodies_mask_the_secrets_that_the_config_knows_and_what_looks_like_one():
    mask = BodyMask(["up-key-9-secret"])
    text = mask("key up-key-9-secret, sk-abcdef0123456789, Bearer abcdef012345, see http://docs.example/a")
    assert text == "key ***, ***, Bearer ***, see http://docs.example/a"


def test_bodies_of_calls_under_way_are_not_kept_once_a_reload_turns_them_off():
    one = inspector()
    one.apply(3, 10**6, bodies=True, without=["private"])
    call = make_call(body=b'{"messages": []}')
    assert one.capture(call) is not None
    one.apply(3, 10**6, bodies=False)
    one.keep(call, 1.0)
    details = one.details("id")
    assert details is not None
    assert details.call.bodies is None
