"""Existing OpenAI code, through the gateway: only the base URL and the key differ.

OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any python examples/drop_in_sdk.py [MODEL]
"""

import sys

import openai

model = sys.argv[1] if len(sys.argv) > 1 else "small"

# OpenAI() reads both variables itself. If the gateway's config has no keys, any text will do as the key.
with openai.OpenAI() as client:
    print("models:", ", ".join(entry.id for entry in client.models.list()))

    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        max_tokens=64,
    )
    print("answer:", answer.choices[0].message.content)

    try:
        client.chat.completions.create(model="no-such-model", messages=[])
    except openai.NotFoundError as error:
        print("error:", error.code, "under request id", error.request_id)
