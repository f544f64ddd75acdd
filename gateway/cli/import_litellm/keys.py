"""Converts LiteLLM's virtual keys, as exported from its database into a CSV file."""

import csv
import io
from decimal import Decimal, InvalidOperation
from typing import Any, Final, get_args

from gateway.cli.import_litellm import values
from gateway.cli.import_litellm.notes import Notes
from gateway.config.scalars import Digest, Name

_COLUMNS: Final = ("token", "key_alias", "models")
_LIMITS: Final = {"rpm": "rpm_limit", "tpm": "tpm_limit", "concurrency": "max_parallel_requests"}
_EVERY: Final = {"all-proxy-models", "*"}
_DAILY: Final = {"1d", "24h", "1440m", "86400s"}
_parse_digest, _parse_name = (get_args(kind)[1].parse for kind in (Digest, Name))


class KeysError(Exception):
    """The file is not such an export; the message says why."""


def read_keys(text: str, notes: Notes) -> list[dict[str, Any]]:
    """The keys of the file, by their SHA-256 as LiteLLM stores it. Notes have the line of the file as path."""
    reader = csv.DictReader(io.StringIO(text))
    missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise KeysError(f"no column {', '.join(missing)}; export it with the SQL line of the docs, with a header")
    keys: list[dict[str, Any]] = []
    for row in reader:
        key = _key(row, f"keys line {reader.line_num}", {one["name"] for one in keys}, notes)
        if key is not None:
            keys.append(key)
    return keys


def _key(row: dict[str, Any], place: str, used: set[str], notes: Notes) -> dict[str, Any] | None:
    token = (row.get("token") or "").strip()
    try:
        digest = _parse_digest(token).reveal()
    except ValueError:
        # It may be a key as it is, and is not shown.
        notes.add(place, "token is no SHA-256, as LiteLLM stores it; left out")
        return None
    key: dict[str, Any] = {"name": _name(row.get("key_alias"), digest, used), "key_sha256": digest}
    models = _array(row.get("models") or "")
    if "all-team-models" in models:
        notes.add(place, "all-team-models: there are no teams; list the models in keys.models")
        models = [model for model in models if model != "all-team-models"] or ["no-model"]
    if models and not _EVERY & set(models):
        key["models"] = [values.text(model) for model in models]
    limits: dict[str, Any] = {}
    for field, column in _LIMITS.items():
        limit = values.number(row | {column: row.get(column) or None}, column, place, notes)
        if isinstance(limit, Decimal) and limit < 1:
            notes.add(place, f"{column} is 0, which lets nothing pass; left out")
            return None
        if isinstance(limit, Decimal):
            limits[field] = int(limit)
    limits |= _budget(row, place, notes)
    return key | ({"limits": limits} if limits else {})


def _budget(row: dict[str, Any], place: str, notes: Notes) -> dict[str, Decimal]:
    written, duration = (row.get("max_budget") or "").strip(), (row.get("budget_duration") or "").strip()
    if not written:
        return {}
    try:
        amount = round(Decimal(written), 9)
    except InvalidOperation:
        notes.add(place, "max_budget must be a number; left out")
        return {}
    if duration in _DAILY:
        return {"usd_per_day": amount}
    span = f"for {duration}" if duration else "for all time"
    notes.add(place, f"a budget of {amount.normalize():f} USD {span} is lost: budgets are by day, limits.usd_per_day")
    return {}


def _name(alias: str | None, digest: str, used: set[str]) -> str:
    name = (alias or "").strip()
    try:
        _parse_name(name)
    except ValueError:
        name = ""
    name = stem = name if name and name != "shadow" else f"key-{digest[:8]}"
    count = 1
    while name in used:
        count += 1
        name = f"{stem}-{count}"
    return name


def _array(text: str) -> list[str]:
    """The items of Postgres's `{a,"b c"}`, or of a list as JSON has it."""
    inner = text.strip().removeprefix("{").removesuffix("}").removeprefix("[").removesuffix("]")
    items = next(csv.reader([inner], skipinitialspace=True, escapechar="\\"), [])
    return [item.strip() for item in items if item.strip()]
