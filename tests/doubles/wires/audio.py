"""An upstream that speaks and listens: audio as bytes and as events, transcripts in each format."""

from typing import Final

from doubles.call import Call
from doubles.script import Script, compact, full, stream
from doubles.wires.forms import fields_of
from doubles.wires.streams import Event, named

SOUND: Final = bytes(range(256)) * 8
"""Every byte, so that nothing can take it for text."""
SPEECH_USAGE: Final[Event] = {"input_tokens": 3, "output_tokens": 40, "total_tokens": 43}
TOKENS: Final[Event] = {
    "type": "tokens",
    "input_tokens": 14,
    "input_token_details": {"text_tokens": 0, "audio_tokens": 14},
    "output_tokens": 6,
    "total_tokens": 20,
}
SECONDS: Final[Event] = {"type": "duration", "seconds": 9}


def speech_events() -> list[bytes]:
    """A stream of audio."""
    sound = {"type": "speech.audio.delta", "audio": "AAEC"}
    return [named(sound), named(sound), named({"type": "speech.audio.done", "usage": SPEECH_USAGE})]


def transcript_events() -> list[bytes]:
    """A stream of a transcript."""
    deltas = [named({"type": "transcript.text.delta", "delta": piece, "logprobs": []}) for piece in ("po", "ng")]
    return [*deltas, named({"type": "transcript.text.done", "text": "pong", "usage": TOKENS})]


def transcript(form: str, usage: Event = TOKENS) -> bytes:
    """A whole transcript in this `response_format`."""
    match form:
        case "text":
            return b"pong\n"
        case "srt":
            return b"1\n00:00:00,000 --> 00:00:09,000\npong\n\n"
        case "vtt":
            return b"WEBVTT\n\n00:00.000 --> 00:09.000\npong\n\n"
        case "verbose_json":
            about = {"language": "english", "duration": 9.0, "text": "pong", "words": [], "segments": []}
            return compact({**about, "usage": {"type": "duration", "seconds": 9}})
    return compact({"text": "pong", "usage": usage})


def answer(call: Call) -> Script:
    """The steps for this call."""
    if call.target.partition("?")[0].endswith("/speech"):
        spoken = call.json()
        if spoken.get("stream_format") == "sse":
            return stream(*speech_events())
        return [full(SOUND, content_type="audio/mpeg")]
    fields = fields_of(call)
    if fields.get("stream") == "true":
        return stream(*transcript_events())
    form = fields.get("response_format", "json")
    kind = "application/json" if form in ("json", "verbose_json") else "text/plain; charset=utf-8"
    return [full(transcript(form), content_type=kind)]
