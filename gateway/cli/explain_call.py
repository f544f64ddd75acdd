"""`sluice explain REQUEST-ID`: what a running gateway decided for a recent call."""

import asyncio
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TextIO
from urllib.parse import quote

import msgspec

from gateway.cli.top.admin_client import AdminAddress, AdminPort, AwayError, UnknownError, admin_address, given_address
from gateway.inspector.call_record import CallRecord, Limits, LimitState
from gateway.inspector.inspector import CallDetails

_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)
_MADE_HERE: Final = re.compile(r"req-[0-9a-f]{32}")
_BAR: Final = 32


def run(text: str, admin: str | None, config: str | None, environ: Mapping[str, str], out: TextIO, err: TextIO) -> int:
    """Print the call and return 0; 1 if the gateway does not answer or has no such call."""
    named = config or environ.get("SLUICE_CONFIG")
    try:
        address = (
            given_address(admin, environ)
            if admin
            else admin_address(Path(named or "sluice.yaml"), environ, named=named is not None)
        )
        details = asyncio.run(_ask(address, text))
    except (UnknownError, AwayError) as error:
        print(f"sluice explain: {error}", file=err)
        return 1
    if details is None:
        print(f"sluice explain: {address} keeps no call with the id {text}; inspector.calls says how many", file=err)
        return 1
    for line in lines(details):
        print(line, file=out)
    return 0


def may_be_id(text: str) -> bool:
    """Whether the text can be a request's id."""
    return _ID.fullmatch(text) is not None


def is_id(text: str) -> bool:
    """Whether the text is an id as the gateway makes them."""
    return _MADE_HERE.fullmatch(text) is not None


async def _ask(address: AdminAddress, id: str) -> CallDetails | None:
    async with AdminPort(address) as admin:
        status, body = await admin.get(f"/admin/calls/{quote(id, safe='')}")
    if status == 404:
        return None
    try:
        return msgspec.json.decode(body, type=CallDetails)
    except msgspec.MsgspecError:
        raise AwayError(f"{address} is not a gateway's admin port") from None


def lines(details: CallDetails) -> Iterator[str]:
    """The call as lines of text: what happened, why, the waterfall, and what it used."""
    record = details.call
    summary = record.summary
    state = "under way" if summary.live else f"{summary.status} {summary.outcome}"
    yield f"{summary.id}  {summary.at}  {summary.endpoint}  {summary.model or '-'}  {state}  {summary.total_ms:,.1f} ms"
    if summary.key:
        yield f"key {summary.key}, {record.priority}"
    if details.others:
        yield f"{details.others} more kept calls have this id; this one ended last"
    for reason in details.why:
        yield f"  - {reason}"
    yield from _waterfall(record)
    if record.routing:
        yield f"routing     {record.routing}"
    for one in record.candidates:
        score = "" if one.score is None else f"  {one.unit} {one.score:g}"
        price = f"  {one.input_usd} in, {one.output_usd or '?'} out" if one.input_usd else ""
        excluded = f"  not compared ({one.excluded})" if one.excluded else ""
        yield f"  {'*' if one.chosen else ' '} {one.upstream}/{one.model}{score}{price}{excluded}"
    yield from _used(record)
    if record.limits is not None:
        yield from _limits(record.limits)


def _waterfall(record: CallRecord) -> Iterator[str]:
    total = max((step.end_ms for step in record.steps), default=0.0) or 1.0
    for step in record.steps:
        start = round(step.start_ms / total * _BAR)
        length = max(1, round((step.end_ms - step.start_ms) / total * _BAR))
        bar = (" " * min(start, _BAR - 1) + "#" * length)[:_BAR].ljust(_BAR)
        where = f"  {step.upstream}/{step.model}" if step.model else f"  {step.upstream}" if step.upstream else ""
        more = f"  {step.pieces} pieces" if step.pieces else f"  {step.verdict}" if step.verdict else ""
        yield f"{step.name:<11} {bar} {step.end_ms - step.start_ms:>10,.1f} ms{where}{more}"


def _used(record: CallRecord) -> Iterator[str]:
    tokens, summary = record.tokens, record.summary
    if tokens is not None:
        estimated = ", estimated" if tokens.estimated else ""
        cached = f" ({tokens.cached_input} cached)" if tokens.cached_input else ""
        cost = f", {summary.cost_usd} USD" if summary.cost_usd is not None else ""
        yield f"tokens      {tokens.input} in{cached}, {tokens.output} out{cost}{estimated}"
    if summary.cache or record.cache_status:
        yield f"cache       {summary.cache or 'miss'}  {record.cache_status}".rstrip()
    if record.batch_size > 1:
        yield f"batch       {record.batch_size} callers shared the upstream call"


def _limits(limits: Limits) -> Iterator[str]:
    reserved = "" if limits.reserved_tokens is None else f", reserved {limits.reserved_tokens} tokens"
    yield f"limits      before {_left(limits.before)}; after {_left(limits.after)}{reserved}"


def _left(state: LimitState | None) -> str:
    if state is None:
        return "unknown"
    parts = [("requests", state.requests), ("tokens", state.tokens)]
    return ", ".join(f"{count} {name}" for name, count in parts if count is not None) or "no rate limit"
