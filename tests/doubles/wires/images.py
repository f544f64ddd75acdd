"""An upstream that makes and changes images: whole answers and streams of partial images."""

from typing import Final

from doubles.call import Call
from doubles.script import Script, compact, full, stream
from doubles.wires.forms import fields_of
from doubles.wires.streams import Event, named

PICTURE: Final = "iVBORw0KGgo="
USAGE: Final[Event] = {
    "input_tokens": 10,
    "input_tokens_details": {"text_tokens": 6, "image_tokens": 4},
    "output_tokens": 20,
    "total_tokens": 30,
}


def images(count: int = 1) -> Event:
    """A whole answer."""
    return {"created": 1, "data": [{"b64_json": PICTURE} for _ in range(count)], "usage": USAGE}


def event_list(kind: str) -> list[Event]:
    """The events of a stream; `kind` is `image_generation` or `image_edit`."""
    picture: Event = {
        "b64_json": PICTURE,
        "created_at": 1,
        "size": "1024x1024",
        "quality": "low",
        "background": "opaque",
        "output_format": "png",
    }
    partial = [{"type": f"{kind}.partial_image", **picture, "partial_image_index": at} for at in range(2)]
    return [*partial, {"type": f"{kind}.completed", **picture, "usage": USAGE}]


def events(kind: str = "image_generation") -> list[bytes]:
    """The same as bytes."""
    return [named(event) for event in event_list(kind)]


def answer(call: Call) -> Script:
    """The steps for this call."""
    edits = not call.target.partition("?")[0].endswith("/generations")
    request: Event = fields_of(call) if edits else call.json()
    if request.get("stream") in (True, "true"):
        return stream(*events("image_edit" if edits else "image_generation"))
    return [full(compact(images(int(request.get("n") or 1))))]
