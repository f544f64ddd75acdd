"""Forms: which fields they have and where, whatever their files contain."""

import contextlib
import string

import pytest
from doubles.wires.forms import BOUNDARY, CONTENT_TYPE, Part, form
from hypothesis import given
from hypothesis import strategies as st
from kit.pieces import examples
from kit.recorded import Recorded, everything

from gateway.core.endpoint import RequestHead
from gateway.core.errors import Rejection
from gateway.wire.http.form import MOST_PARTS, FormField, MalformedForm, boundary_of, form_fields
from gateway.wire.openai.forms import read_form_head

TYPE = CONTENT_TYPE[1]
NAMES = st.text(string.ascii_letters + string.digits + "[]_-.", min_size=1, max_size=12)
DATA = st.binary(max_size=40) | st.sampled_from(
    [
        b"--",
        b"\r\n",
        b"\r\n--",
        f"\r\n--{BOUNDARY[:-1]}".encode(),
        f"--{BOUNDARY}".encode(),
        b'name="model"',
        b"\r\n\r\n",
    ]
)
PARTS = st.builds(Part, NAMES, DATA, st.none() | NAMES, st.none() | st.just("audio/wav"))


@examples(300)
@given(st.lists(PARTS, max_size=5))
def test_every_part_is_found_where_it_is(parts: list[Part]) -> None:
    body = form(*parts)
    found = form_fields(body, TYPE)
    assert [(one.name, body[one.start : one.end], one.file) for one in found] == [
        (part.name, part.data, part.file is not None) for part in parts
    ]


@examples(300)
@given(st.lists(PARTS, min_size=1, max_size=3), st.data())
def test_what_is_cut_short_is_malformed(parts: list[Part], data: st.DataObject) -> None:
    body = form(*parts)
    cut = data.draw(st.integers(0, len(body) - len(BOUNDARY) - 6))
    with pytest.raises(MalformedForm):
        form_fields(body[:cut], TYPE)


@examples(300)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for given_ in (body, form(Part("a", b"b")) + body, body + form(Part("a", b"b"))):
        with contextlib.suppress(MalformedForm):
            form_fields(given_, TYPE)


@pytest.mark.parametrize(
    "request_", [one for one in everything() if one.body and one.json is None], ids=lambda one: one.target
)
def test_the_forms_of_real_clients(request_: Recorded) -> None:
    kind = dict(request_.headers)["content-type"]
    head = read_form_head(request_.body, kind)
    assert isinstance(head, RequestHead)
    assert head.model == "small"
    assert head.stream == (b"stream" in request_.body)
    [(start, end)] = head.spans
    assert request_.body[start:end] == b"small"


MODEL = Part("model", b"m")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (form(), "model"),
        (form(Part("model", b"")), "model"),
        (form(MODEL, MODEL), "model"),
        (form(Part("model", b"m", "model.txt")), "model"),
        (form(MODEL, Part("n", b"1000")), "n"),
        (form(*[MODEL] * (MOST_PARTS + 1)), None),
        (b"", None),
        (b"{}", None),
        (b"--" + BOUNDARY.encode(), None),
        (form(MODEL)[:-6], None),
        (form(MODEL).replace(b'name="model"', b"x"), None),
    ],
)
def test_what_is_wrong_with_a_form_is_said(body: bytes, param: str | None) -> None:
    rejection = read_form_head(body, TYPE)
    assert isinstance(rejection, Rejection)
    assert (rejection.kind.code, rejection.param) == ("invalid_value", param)


def test_fields_that_steer_the_engine_are_seen_in_forms() -> None:
    head = read_form_head(form(MODEL, Part("priority", b"-1")), TYPE)
    assert isinstance(head, RequestHead)
    assert head.engine_fields == ("priority",)


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/form-data; boundary=x", "x"),
        ('Multipart/Form-Data; charset=utf-8; boundary="a b"', "a b"),
        ("multipart/form-data", None),
        ("multipart/mixed; boundary=x", None),
        ("application/json; boundary=x", None),
        ("multipart/form-data; boundary=" + "x" * 71, None),
        ("", None),
    ],
)
def test_the_boundary_is_that_of_the_content_type(content_type: str, boundary: str | None) -> None:
    assert boundary_of(content_type) == boundary


def test_a_preamble_and_padding_are_passed_over() -> None:
    body = b"preamble\r\n" + form(MODEL).replace(BOUNDARY.encode() + b"\r\n", BOUNDARY.encode() + b" \t\r\n", 1)
    [field] = form_fields(body + b"epilogue", TYPE)
    assert (field.name, body[field.start : field.end]) == ("model", b"m")
    assert isinstance(field, FormField)
