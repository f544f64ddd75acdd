"""The base of every section of the config."""

from msgspec import Struct


class Section(Struct, frozen=True, kw_only=True):
    """Base of every section."""
