"""Makes random models so small that the server around them is the limit, in the engine's environment.

`.venv-engine/bin/python -m benchmarks.tiny_models CHAT_MODEL EMBEDDING_MODEL FOLDER`: the first two are folders of
real models, whose tokenizers are used; FOLDER gets `chat` (a Llama of 3M parameters) and `embed`.
"""

from pathlib import Path

from benchmarks.arguments import arguments

HIDDEN, LAYERS, HEADS = 64, 2, 2


def make(chat: Path, embed: Path, folder: Path) -> None:
    """Write both models unless they exist."""
    # Known only in the engine's environment.
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    if not (folder / "chat" / "config.json").exists():
        tokenizer = AutoTokenizer.from_pretrained(chat)
        tokenizer.save_pretrained(folder / "chat")
        config = LlamaConfig(
            vocab_size=49152,
            hidden_size=HIDDEN,
            intermediate_size=2 * HIDDEN,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
        LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder / "chat")
    if not (folder / "embed" / "config.json").exists():
        tokenizer = AutoTokenizer.from_pretrained(embed)
        tokenizer.save_pretrained(folder / "embed")
        small = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=HIDDEN,
            intermediate_size=4 * HIDDEN,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            max_position_embeddings=512,
        )
        BertModel(small).save_pretrained(folder / "embed")


if __name__ == "__main__":
    make(*arguments(__doc__, chat_model=Path, embedding_model=Path, folder=Path))
