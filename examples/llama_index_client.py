"""LlamaIndex's chat and embeddings clients, through the gateway.

pip install llama-index-llms-openai-like llama-index-embeddings-openai-like
OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any python examples/llama_index_client.py [MODEL]
"""

import os
import sys

import openai
from llama_index.core.llms import ChatMessage
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

model = sys.argv[1] if len(sys.argv) > 1 else "small"
gateway, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]

# The "Like" classes accept any model name. LlamaIndex itself cuts prompts to `context_window`.
chat = OpenAILike(
    model=model,
    api_base=gateway,
    api_key=key,
    is_chat_model=True,
    context_window=32768,
    temperature=0,
    max_tokens=64,
)
question = [ChatMessage("What is the capital of France?")]
print("answer:", chat.chat(question).message.content)

for chunk in chat.stream_chat(question):
    print(chunk.delta, end="")
print()

embed = OpenAILikeEmbedding(model_name="embed", api_base=gateway, api_key=key)
try:
    vectors = embed.get_text_embedding_batch(["A sluice lets water through.", "As much as the mill can use."])
except openai.NotFoundError:
    sys.exit("no embedding model embed: `sluice up --embeddings` serves one, or add it to the config")
print(len(vectors), "texts,", len(vectors[0]), "dimensions")
