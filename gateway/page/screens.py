"""What each screen shows, from the admin port's views as plain data."""

import pprint
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gateway.inspector.call_record import CallRecord
from gateway.inspector.inspector import CallDetails
from gateway.inspector.reasons import reasons
from gateway.page.figures import Totals
from gateway.page.texts import Words

_MOST_KEYS: Final = 200
_LIMITS: Final = ("rpm", "tpm", "concurrency", "usd_per_day")
_TONES: Final = {"up": "good", "down": "bad", "failing": "bad"}

Plain = Mapping[str, Any]
"""A view as JSON would show it."""


def upstream_rows(views: Plain, config: Plain, now: Totals) -> list[dict[str, Any]]:
    """A row for each upstream."""
    rows = []
    for name, view in views.items():
        settings = config["upstreams"].get(name, {})
        attempts = ((result, count) for (upstream, result), count in now.attempts.items() if upstream == name and count)
        most = view.get("max_concurrency") or settings.get("max_concurrency")
        rows.append(
            {
                "name": name,
                "kind": settings.get("kind", ""),
                "tone": _TONES.get(view["state"], "warn"),
                "most": most if isinstance(most, int) else None,
                "attempts": sorted(attempts),
                **{part: view.get(part) for part in ("state", "in_flight", "waiting", "breaker", "last_error")},
                "oldest_s": view.get("oldest_s", 0.0),
            }
        )
    return rows


def model_rows(views: Plain, config: Plain, now: Totals) -> list[dict[str, Any]]:
    """A section for each public model, with a row for each candidate."""
    sections = []
    for name, model in config["models"].items():
        candidates = []
        for one in model["candidates"]:
            state = views.get(one["upstream"], {}).get("state", "unknown")
            chosen = (
                (reason, count)
                for (of, upstream, reason), count in now.decisions.items()
                if (of, upstream) == (name, one["upstream"]) and count
            )
            more = {"state": state, "tone": _TONES.get(state, "warn"), "decisions": sorted(chosen)}
            candidates.append({**one, **more})
        parts = {part: model[part] for part in ("route", "fallbacks", "spill_after")}
        sections.append({"name": name, "candidates": candidates, **parts})
    return sections


def key_rows(config: Plain, left: Plain, budgets: Plain, now: Totals) -> list[dict[str, Any]]:
    """A row for each of the first keys; `left` is `/admin/keys`, `budgets` `/admin/budgets`."""
    rows = []
    for key in config["keys"][:_MOST_KEYS]:
        name, state = key["name"], left.get(key["name"], {})
        rests = {"rpm": state.get("requests_left"), "tpm": state.get("tokens_left")}
        rests["usd_per_day"] = budgets.get(name, {}).get("left_usd")
        limits = key["limits"]
        rows.append(
            {
                "name": name,
                "priority": key["priority"],
                "models": key["models"],
                "limits": [(limit, limits[limit]) for limit in _LIMITS if limits.get(limit) is not None],
                "left": [(limit, rest) for limit, rest in rests.items() if rest is not None],
                "refused": sorted((limit, count) for (of, limit), count in now.limited.items() if of == name and count),
            }
        )
    return rows


def hidden_keys(config: Plain) -> int:
    """Keys that `key_rows` leaves out."""
    return max(0, len(config["keys"]) - _MOST_KEYS)


def spent_today(usage: object) -> float | None:
    """Dollars in the rows of `/admin/usage?days=1`; None if usage is not recorded."""
    return sum(float(row["cost_usd"]) for row in usage) if isinstance(usage, list) else None


def call_context(details: CallDetails | None, words: Words, base_url: str) -> dict[str, Any]:
    """What the screen of one call shows; `base_url` is the main port's address."""
    if details is None:
        return {"record": None}
    record = details.call
    curl, python = as_code(record, base_url)
    return {
        "record": record,
        "others": details.others,
        "why": [words.reason(reason) for reason in reasons(record)],
        "total": max(record.summary.total_ms, 0.01),
        "limits": list(_limit_rows(record)),
        "curl": curl,
        "python": python,
    }


def _limit_rows(record: CallRecord) -> Iterator[tuple[str, object, object, object, object]]:
    limits = record.limits
    if limits is None:
        return
    before, after = limits.before, limits.after
    if limits.rpm is not None:
        reserved = None if before is None else 1
        yield "rpm", limits.rpm, before and before.requests, reserved, after and after.requests
    if limits.tpm is not None:
        yield "tpm", limits.tpm, before and before.tokens, limits.reserved_tokens, after and after.tokens
    if limits.concurrency is not None:
        yield "concurrency", limits.concurrency, None, None, None
    if limits.usd_per_day is not None:
        yield "usd_per_day", limits.usd_per_day, None, limits.reserved_usd, None


def as_code(record: CallRecord, base_url: str) -> tuple[str, str]:
    """The request as a shell command and as Python, with a placeholder for the key; empty unless bodies are kept."""
    bodies = record.bodies
    if bodies is None or bodies.cut:
        return "", ""
    return curl(base_url, record.summary.endpoint, bodies.request), _python(base_url, record, bodies.request)


def curl(base_url: str, endpoint: str, body: str) -> str:
    """A request as one shell command."""
    address = shlex.quote(base_url + endpoint)
    head = f'curl -s {address} -H "authorization: Bearer $SLUICE_KEY" -H "content-type: application/json"'
    return f"{head} -d {shlex.quote(body)}"


def _python(base_url: str, record: CallRecord, body: str) -> str:
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    lines: Iterable[str] = (
        "import os",
        "",
        "import httpx",
        "",
        f"body = {pprint.pformat(decoded, width=100, sort_dicts=False)}",
        f"answer = httpx.post({base_url + record.summary.endpoint!r}, json=body, timeout=600,",
        '                    headers={"authorization": "Bearer " + os.environ["SLUICE_KEY"]})',
        "print(answer.text)",
    )
    return "\n".join(lines)
