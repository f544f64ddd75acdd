"""One healthy upstream that serves every wire."""

from doubles import replies
from doubles.call import Call
from doubles.script import Script
from doubles.upstream import FaultUpstream
from doubles.wires import audio, images, lists
from doubles.wires.messages import MessagesEngine
from doubles.wires.responses import ResponsesEngine


class EveryWire:
    """Scripts an upstream. `responses` and `messages` may be replaced, by engines that call a tool."""

    def __init__(self, upstream: FaultUpstream) -> None:
        self.upstream = upstream
        self.responses = ResponsesEngine()
        self.messages = MessagesEngine()
        upstream.always(self.answer)

    def answer(self, call: Call) -> Script:
        """The steps for this call."""
        path = call.target.partition("?")[0]
        for area, answer in (
            ("/v1/responses", self.responses.answer),
            ("/v1/messages", self.messages.answer),
            ("/v1/images/", images.answer),
            ("/v1/audio/", audio.answer),
        ):
            if path.startswith(area):
                return answer(call)
        if path.rpartition("/")[2] in lists.ANSWERS:
            return lists.answer(call)
        return replies.ordinary(call)
