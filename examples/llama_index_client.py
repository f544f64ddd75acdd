"""LlamaIndex's chat and embeddings clients, through the gateway.

pip install llama-index-llms-openai-like llama-index-embeddings-openai-like
OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=any python examples/llama_index_client.py [MODEL]
"""

import os
import sys

from llama_index.core.llms import ChatMessage
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

model = sys.argv[1] if len(sys.argv) > 1 else "small"
gateway, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]

# The classes named "like" take any model's name. LlamaIndex itself cuts prompts to `context_window`.
chat = OpenAILike(model=model, api_base=gateway, api_key=key, is_chat_model=True, context_window=32768)
question = [ChatMessage("What is the capital of France?")]
print("answer:", chat.chat(question).message.content)

for chunk in chat.stream_chat(question):
    print(chunk.delta, end="")
print()

embed = OpenAILikeEmbedding(model_name="embed", api_base=gateway, api_key=key)
vectors = embed.get_text_embedding_batch(["A sluice lets water through.", "As much as the mill can use."])
print(len(vectors), "texts,", len(vectors[0]), "dimensions")
