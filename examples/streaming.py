"""A stream, its usage, and how the SDK reports a stream that breaks.

OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any python examples/streaming.py [MODEL]
"""

import sys

import openai

model = sys.argv[1] if len(sys.argv) > 1 else "small"

with openai.OpenAI() as client:
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        max_tokens=64,
        stream=True,
        stream_options={"include_usage": True},
    )
    try:
        for chunk in stream:
            for choice in chunk.choices:
                print(choice.delta.content or "", end="", flush=True)
            if chunk.usage is not None:
                print(f"\n{chunk.usage.prompt_tokens} tokens in, {chunk.usage.completion_tokens} out")
    except openai.APIError as error:
        # The answer so far is incomplete: the upstream died, stalled or ended too early.
        print(f"\nbroken off: {error.message}")
