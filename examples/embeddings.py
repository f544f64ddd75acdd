"""Several texts in one embeddings call.

OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any python examples/embeddings.py [MODEL]
"""

import sys

import openai

model = sys.argv[1] if len(sys.argv) > 1 else "embed"
texts = ["A sluice lets water through.", "As much as the mill can use."]

with openai.OpenAI() as client:
    try:
        answer = client.embeddings.create(model=model, input=texts)
    except openai.NotFoundError:
        sys.exit(f"no embedding model {model}: `sluice up --embeddings` serves one, or add it to the config")
    for text, entry in zip(texts, answer.data, strict=True):
        print(f"{len(entry.embedding)} dimensions: {text}")
