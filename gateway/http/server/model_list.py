"""`GET /v1/models`: the public models that the caller's key may use, read from the config."""

import msgspec

from gateway.auth.model_access import unknown_model
from gateway.auth.model_names import ModelNames
from gateway.core.call import Route
from gateway.core.caller import Caller
from gateway.core.errors import Rejection


class ModelList:
    """The models and exact aliases in OpenAI's shape. `created` (Unix seconds) is the same for all of them."""

    def __init__(self, names: ModelNames, created: int) -> None:
        self._names = names
        self._created = created

    def listing(self, caller: Caller) -> bytes:
        """The JSON body of the list."""
        data = [self._entry(name, route) for name, route in self._names.exact.items() if caller.may_use(route.name)]
        return msgspec.json.encode({"object": "list", "data": data})

    def entry(self, caller: Caller, name: str) -> bytes | Rejection:
        """The JSON body for one model or alias; 404 for a model that the key may not use."""
        route = self._names.find(name)
        if route is None or not caller.may_use(route.name):
            return unknown_model(name, self._names.public, caller)
        return msgspec.json.encode(self._entry(name, route))

    def _entry(self, name: str, route: Route) -> dict[str, object]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "sluice"} | _lengths(route)


def _lengths(route: Route) -> dict[str, int]:
    """The largest window and answer of its candidates, under the names that clients read; nothing unknown."""
    windows = [one.context_window for one in route.candidates if one.context_window is not None]
    outputs = [one.max_output for one in route.candidates if one.max_output is not None]
    lengths = {"context_length": max(windows), "max_model_len": max(windows)} if windows else {}
    return lengths | ({"max_output_tokens": max(outputs)} if outputs else {})
