"""The streams of images, speech and transcripts: what their events mean."""

from typing import Final

from gateway.wire.openai.typed_events import EventTypes

IMAGES: Final = EventTypes(
    output=frozenset(("image_generation.partial_image", "image_edit.partial_image")),
    last=frozenset(("image_generation.completed", "image_edit.completed")),
)
SPEECH: Final = EventTypes(output=frozenset(("speech.audio.delta",)), last=frozenset(("speech.audio.done",)))
TRANSCRIPTS: Final = EventTypes(output=frozenset(("transcript.text.delta",)), last=frozenset(("transcript.text.done",)))
