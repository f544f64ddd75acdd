"""Sluice: the gateway in front of a team's own LLM engine and its paid upstreams."""

__version__ = "0.1.0"
