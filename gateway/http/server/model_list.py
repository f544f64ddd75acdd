"""`GET /v1/models`: the public models that the caller's key may use, from the config, without any I/O."""

from collections.abc import Iterable

import msgspec

from gateway.core.caller import Caller
from gateway.core.errors import MODEL_NOT_FOUND, Rejection


class ModelList:
    """Answers in OpenAI's shape. `created` is a Unix time in seconds, the same for all."""

    def __init__(self, names: Iterable[str], created: int) -> None:
        self._models = {
            name: {"id": name, "object": "model", "created": created, "owned_by": "sluice"} for name in names
        }

    def listing(self, caller: Caller) -> bytes:
        """The body of the list."""
        data = [entry for name, entry in self._models.items() if caller.may_use(name)]
        return msgspec.json.encode({"object": "list", "data": data})

    def one(self, caller: Caller, name: str) -> bytes | Rejection:
        """The body for one model; one that the key may not use does not exist for it."""
        entry = self._models.get(name)
        if entry is None or not caller.may_use(name):
            return Rejection(MODEL_NOT_FOUND, f"The model `{name[:200]}` does not exist.", "model")
        return msgspec.json.encode(entry)
