"""A stream, its usage, and what a stream that breaks looks like to the SDK.

OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any python examples/streaming.py [MODEL]
"""

import sys

import openai

model = sys.argv[1] if len(sys.argv) > 1 else "small"

with openai.OpenAI() as client:
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
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
        # What came so far is not the whole answer: the upstream died, stalled or ended too early.
        print(f"\nbroken off: {error.message}")
