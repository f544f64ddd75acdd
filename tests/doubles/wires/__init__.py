"""Fake upstreams of the wires beside chat, completions and embeddings: a healthy answer to each, and its deaths."""
