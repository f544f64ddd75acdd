"""`python -m benchmarks.cache`: time to compute a cache key, and to replay a cached answer as a stream."""

import json
from collections.abc import Callable
from time import perf_counter

from benchmarks.arguments import arguments
from gateway.cache import key as cache_key
from gateway.cache import replay
from gateway.cache.cached_answer import replace_id
from gateway.wire.openai.chat import CHAT

ROUNDS = 20


def body(size: int) -> bytes:
    """A chat request of this size, in bytes."""
    turns = [{"role": "system", "content": "You are terse. " * 20}, {"role": "user", "content": ""}]
    call = {"model": "small", "temperature": 0, "max_tokens": 200, "messages": turns}
    turns[1]["content"] = ("word " * size)[: size - len(json.dumps(call, separators=(",", ":")))]
    return json.dumps(call, separators=(",", ":")).encode()


def best(do: Callable[[], object], times: int) -> float:
    """Microseconds per call, in the fastest round."""
    found = []
    for _ in range(ROUNDS):
        start = perf_counter()
        for _ in range(times):
            do()
        found.append((perf_counter() - start) / times * 1e6)
    return min(found)


def main() -> None:
    """Print the table."""
    scope = cache_key.scope("team-a", CHAT, "small", b"serving")
    for size, times in ((1_400, 2000), (150_000, 50)):
        call, digests = body(size), cache_key.RequestDigests()

        def new(call: bytes = call) -> object:
            digest = cache_key.digest_of(call)
            return digest and cache_key.key(scope, digest.digest)

        def again(call: bytes = call, digests: cache_key.RequestDigests = digests) -> object:
            digest = digests.of(call)
            return digest and cache_key.key(scope, digest.digest)

        print(f"{len(call)} bytes: new {best(new, times):.1f} us, again {best(again, times):.1f} us")
    message = {"role": "assistant", "content": "word " * 100}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    usage = {"prompt_tokens": 120, "completion_tokens": 100, "total_tokens": 220}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "small"}
    answer_body = json.dumps({**answer, "choices": [choice], "usage": usage}, separators=(",", ":")).encode()
    replayed = best(lambda: replay.chunks(replace_id(answer_body, "x" * 24), CHAT, usage=True), 500)
    print(f"an answer of {len(answer_body)} bytes replayed as a stream: {replayed:.1f} us")
    with_id = best(lambda: replace_id(answer_body, "x" * 24), 500)
    print(f"under another id: {with_id:.1f} us")


if __name__ == "__main__":
    arguments(__doc__)
    main()
