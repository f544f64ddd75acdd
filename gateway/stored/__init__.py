"""Stored responses: which key made each, and at which upstream it lives."""
