"""LangChain's chat and embeddings clients, through the gateway.

pip install langchain-openai
OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any python examples/langchain_client.py [MODEL]
"""

import os
import sys

import openai
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

model = sys.argv[1] if len(sys.argv) > 1 else "small"
gateway = os.environ["OPENAI_BASE_URL"]

chat = ChatOpenAI(model=model, base_url=gateway, temperature=0, max_tokens=64)
answer = chat.invoke("What is the capital of France?")
print("answer:", answer.text, "from", answer.response_metadata["model_name"])

for chunk in chat.stream("What is the capital of France?", stream_usage=True):
    print(chunk.text, end="")
    if usage := chunk.usage_metadata:
        print(f"\n{usage['input_tokens']} tokens in, {usage['output_tokens']} out")

# False sends texts as texts. The default sends OpenAI's token ids, which other models do not understand.
embed = OpenAIEmbeddings(model="embed", base_url=gateway, check_embedding_ctx_length=False)
try:
    vectors = embed.embed_documents(["A sluice lets water through.", "As much as the mill can use."])
except openai.NotFoundError:
    sys.exit("no embedding model embed: `sluice up --embeddings` serves one, or add it to the config")
print(len(vectors), "texts,", len(vectors[0]), "dimensions")
