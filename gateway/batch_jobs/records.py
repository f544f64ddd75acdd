"""What is stored of files and batches, and how OpenAI's API shows them. Times are Unix seconds."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from gateway.core.units import usd

FilePurpose = Literal["assistants", "batch", "batch_output", "fine-tune", "vision", "user_data", "evals"]
UPLOADED: Final = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
"""Purposes of the files that clients upload."""

BatchStatus = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
]
ENDED: Final = frozenset(("failed", "completed", "expired", "cancelled"))
"""Statuses that never change again."""


class StoredFile(Struct, frozen=True, omit_defaults=True):
    """A file of a key. `id` is also the name of its content."""

    id: str
    key: str
    filename: str
    purpose: FilePurpose
    bytes: int
    created_at: int
    expires_at: int | None = None

    def shown(self) -> dict[str, Any]:
        """OpenAI's file object."""
        shown: dict[str, Any] = {
            "id": self.id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": self.created_at,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
        }
        return shown if self.expires_at is None else {**shown, "expires_at": self.expires_at}


class InputError(Struct, frozen=True):
    """Why an input file was refused: OpenAI's batch error. `line` counts from 1; None: the whole file."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class LineTally(Struct, frozen=True, omit_defaults=True):
    """How many lines have ended in the output and in the error file, and the tokens that they used."""

    completed: int = 0
    failed: int = 0
    input: int = 0
    cached_input: int = 0
    output: int = 0
    reasoning: int = 0
    cost: int = 0
    """Nano-dollars, as far as prices are known."""

    def plus(self, other: "LineTally") -> "LineTally":
        """The sum of both."""
        mine, others = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return LineTally(*(a + b for a, b in zip(mine, others, strict=True)))


class BatchJob(Struct, frozen=True, omit_defaults=True):
    """A batch. `stamps` has the time of each status that it has reached.

    `group` is set for a caller that an identity provider vouches for. `closing` says how it will end once its
    lines have stopped: `completed`, `expired` or `cancelled`. `paused` is a sentence while it cannot go on by
    itself. `tally` is final once the batch has ended.
    """

    id: str
    key: str
    endpoint: str
    input_file_id: str
    completion_window: str
    created_at: int
    expires_at: int
    group: str = ""
    status: BatchStatus = "validating"
    stamps: dict[str, int] = {}
    total: int = 0
    model: str = ""
    errors: tuple[InputError, ...] = ()
    output_file_id: str | None = None
    error_file_id: str | None = None
    metadata: dict[str, str] | None = None
    output_keep_s: int | None = None
    closing: BatchStatus | None = None
    paused: str = ""
    tally: LineTally = LineTally()

    @property
    def ended(self) -> bool:
        """Whether it never changes again."""
        return self.status in ENDED

    def at(self, status: BatchStatus, now: float, **changes: Any) -> "BatchJob":
        """The batch in its next status. Stamps never go back, even where the wall clock does."""
        stamp = max([int(now), self.created_at, *self.stamps.values()])
        return self.with_(status=status, stamps={**self.stamps, status: stamp}, **changes)

    def with_(self, **changes: Any) -> "BatchJob":
        """A copy with these changes."""
        return msgspec.structs.replace(self, **changes)

    def shown(self, tally: LineTally) -> dict[str, Any]:
        """OpenAI's batch object. Two members are ours: `paused` while the batch waits for someone, `cost_usd`."""
        shown: dict[str, Any] = {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "input_file_id": self.input_file_id,
            "completion_window": self.completion_window,
            "status": self.status,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "request_counts": {"total": self.total, "completed": tally.completed, "failed": tally.failed},
            **{f"{status}_at": stamp for status, stamp in self.stamps.items()},
        }
        if self.model:
            shown["model"] = self.model
        if self.errors:
            shown["errors"] = {"object": "list", "data": [msgspec.to_builtins(error) for error in self.errors]}
        for name in ("output_file_id", "error_file_id", "metadata"):
            if getattr(self, name) is not None:
                shown[name] = getattr(self, name)
        if tally.input or tally.output:
            shown["usage"] = _usage(tally)
        if tally.cost:
            shown["cost_usd"] = usd(tally.cost)
        if self.paused and not self.ended:
            shown["paused"] = self.paused
        return shown


def _usage(tally: LineTally) -> dict[str, Any]:
    return {
        "input_tokens": tally.input,
        "input_tokens_details": {"cached_tokens": tally.cached_input},
        "output_tokens": tally.output,
        "output_tokens_details": {"reasoning_tokens": tally.reasoning},
        "total_tokens": tally.input + tally.output,
    }


def listed(entries: Sequence[Mapping[str, Any]], *, more: bool) -> Mapping[str, Any]:
    """OpenAI's list object; `more`: there are entries behind these."""
    first, last = (entries[0]["id"], entries[-1]["id"]) if entries else ("", "")
    return {"object": "list", "data": entries, "first_id": first, "last_id": last, "has_more": more}
