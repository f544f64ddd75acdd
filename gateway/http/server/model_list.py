"""`GET /v1/models`: the public models that the caller's key may use, read from the config."""

from collections.abc import Mapping

import msgspec

from gateway.auth.model_access import unknown_model
from gateway.core.call import Route
from gateway.core.caller import Caller
from gateway.core.errors import Rejection


class ModelList:
    """The model list in OpenAI's shape. `created` (Unix seconds) is the same for all models."""

    def __init__(self, routes: Mapping[str, Route], created: int) -> None:
        self._models = {
            name: {"id": name, "object": "model", "created": created, "owned_by": "sluice"} | _lengths(route)
            for name, route in routes.items()
        }

    def listing(self, caller: Caller) -> bytes:
        """The JSON body of the list."""
        data = [entry for name, entry in self._models.items() if caller.may_use(name)]
        return msgspec.json.encode({"object": "list", "data": data})

    def entry(self, caller: Caller, name: str) -> bytes | Rejection:
        """The JSON body for one model; 404 for a model that the key may not use."""
        entry = self._models.get(name)
        if entry is None or not caller.may_use(name):
            return unknown_model(name, self._models, caller)
        return msgspec.json.encode(entry)


def _lengths(route: Route) -> dict[str, int]:
    """The largest window and answer of its candidates, under the names that clients read; nothing unknown."""
    windows = [one.context_window for one in route.candidates if one.context_window is not None]
    outputs = [one.max_output for one in route.candidates if one.max_output is not None]
    lengths = {"context_length": max(windows), "max_model_len": max(windows)} if windows else {}
    return lengths | ({"max_output_tokens": max(outputs)} if outputs else {})
