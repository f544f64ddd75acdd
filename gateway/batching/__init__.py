"""Batching: calls that would have to wait share an upstream call, and long lists are split into several."""
