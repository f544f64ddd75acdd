"""Builds the running gateway from its config: factories by feature, generations and reload."""
