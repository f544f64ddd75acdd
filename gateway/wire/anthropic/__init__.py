"""Anthropic's wire: the Messages API."""
