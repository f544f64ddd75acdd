"""Existing OpenAI code, through the gateway: only base URL and key differ.

OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any python examples/drop_in_sdk.py [MODEL]
"""

import sys

import openai

model = sys.argv[1] if len(sys.argv) > 1 else "small"

# OpenAI() reads both variables itself. Without keys in the gateway's config any text is a good key.
with openai.OpenAI() as client:
    print("models:", ", ".join(entry.id for entry in client.models.list()))

    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "What is the capital of France?"}]
    )
    print("answer:", answer.choices[0].message.content)

    try:
        client.chat.completions.create(model="no-such-model", messages=[])
    except openai.NotFoundError as error:
        print("error:", error.code, "under request id", error.request_id)
