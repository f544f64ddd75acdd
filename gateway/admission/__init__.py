"""How many calls an engine takes at once: a ledger of its KV cache, and a limit that finds itself."""
