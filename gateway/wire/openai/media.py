"""Images and audio: their endpoints, and what their answers and events mean."""

from typing import Final

import msgspec

from gateway.core.endpoint import FORM, AnswerSummary, Endpoint, RequestHead
from gateway.core.errors import Rejection
from gateway.core.request_fields import RequestFields
from gateway.core.tokens import OutputCaps
from gateway.wire.openai import peek
from gateway.wire.openai.answer import read_answer
from gateway.wire.openai.errors import OpenAIErrors
from gateway.wire.openai.forms import read_form_head
from gateway.wire.openai.token_weight import NO_CAP
from gateway.wire.openai.typed_events import EventTypes, typed_reader

IMAGE_EVENTS: Final = EventTypes(
    output=frozenset(("image_generation.partial_image", "image_edit.partial_image")),
    last=frozenset(("image_generation.completed", "image_edit.completed")),
)
SPEECH_EVENTS: Final = EventTypes(output=frozenset(("speech.audio.delta",)), last=frozenset(("speech.audio.done",)))
TRANSCRIPT_EVENTS: Final = EventTypes(
    output=frozenset(("transcript.text.delta",)), last=frozenset(("transcript.text.done",)), marker=True
)


class MediaErrors(OpenAIErrors):
    """OpenAI's shape; the error event of a stream has a name and a type, as all of its events."""

    def event(self, rejection: Rejection, request_id: str) -> bytes:
        """The last event of a broken stream."""
        body = msgspec.json.decode(self.body(rejection, request_id))
        return b"event: error\ndata: %b\n\n" % msgspec.json.encode({"type": "error", **body})


def no_caps(fields: RequestFields | None) -> OutputCaps:
    """Clients cannot bound what an image or a sound costs."""
    return NO_CAP


def read_media(body: bytes) -> AnswerSummary | None:
    """What is known of an answer: JSON, or bytes that pass as they are. A page of a web server is no answer."""
    start = bytes(body[:64]).lstrip().lower()
    if start.startswith(b"{"):
        return read_answer(body)
    return None if start.startswith((b"<!doctype", b"<html")) else AnswerSummary()


def read_speech_head(body: bytes, content_type: str) -> RequestHead | Rejection:
    """The head of a speech request, which asks for a stream of events by its `stream_format`."""
    head = peek.read_head(body, content_type)
    if isinstance(head, Rejection):
        return head
    return head._replace(stream=head.fields is not None and head.fields.stream_format == "sse")


IMAGES: Final = Endpoint(
    "/v1/images/generations",
    "images",
    errors=MediaErrors(),
    head=peek.read_head,
    answer=read_answer,
    caps=no_caps,
    reader=typed_reader(IMAGE_EVENTS),
)
IMAGE_EDITS: Final = Endpoint(
    "/v1/images/edits",
    "images",
    errors=MediaErrors(),
    head=read_form_head,
    answer=read_answer,
    caps=no_caps,
    reader=typed_reader(IMAGE_EVENTS),
    media_types=(FORM,),
)
IMAGE_VARIATIONS: Final = Endpoint(
    "/v1/images/variations",
    "images",
    errors=MediaErrors(),
    head=read_form_head,
    answer=read_answer,
    caps=no_caps,
    media_types=(FORM,),
)
SPEECH: Final = Endpoint(
    "/v1/audio/speech",
    "audio",
    errors=MediaErrors(),
    head=read_speech_head,
    answer=read_media,
    any_answer=True,
    caps=no_caps,
    reader=typed_reader(SPEECH_EVENTS),
)
TRANSCRIPTIONS: Final = Endpoint(
    "/v1/audio/transcriptions",
    "audio",
    errors=MediaErrors(),
    head=read_form_head,
    answer=read_media,
    any_answer=True,
    caps=no_caps,
    reader=typed_reader(TRANSCRIPT_EVENTS),
    media_types=(FORM,),
)
TRANSLATIONS: Final = Endpoint(
    "/v1/audio/translations",
    "audio",
    errors=MediaErrors(),
    head=read_form_head,
    answer=read_media,
    any_answer=True,
    caps=no_caps,
    media_types=(FORM,),
)
