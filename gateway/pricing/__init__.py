"""Prices of candidates: from the config, or from the catalogue of the package genai-prices."""
