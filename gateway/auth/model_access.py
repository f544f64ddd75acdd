"""Resolves the public model of a request and checks that its key may use it."""

from collections.abc import Iterable, Mapping
from itertools import islice

from gateway.auth.model_names import ModelNames
from gateway.core.call import Call, Route
from gateway.core.caller import Caller
from gateway.core.errors import MODEL_NOT_ALLOWED, MODEL_NOT_FOUND, RESPONSE_NOT_FOUND, Rejection

_LISTED = 10
"""Models that the error about an unknown one names."""


def unknown_model(name: str, models: Iterable[str], caller: Caller) -> Rejection:
    """The 404 of a model that does not exist, with the first ten that the caller may use."""
    usable = (model for model in models if caller.may_use(model))
    listed = [model[:200] for model in islice(usable, _LISTED + 1)]
    if not listed:
        there_is = "This key may use no model."
    elif len(listed) > _LISTED:
        there_is = f"Models for this key: {_quoted(listed[:-1])}, ...; GET /v1/models lists all."
    else:
        there_is = f"Models for this key: {_quoted(listed)}."
    return Rejection(MODEL_NOT_FOUND, f"The model `{name[:200]}` does not exist. {there_is}", "model")


def _not_served(call: Call, served: Mapping[str, Route]) -> Rejection:
    """The 404 of a model whose candidates do not serve the endpoint, with the first ten models that would."""
    usable = (name for name, route in served.items() if route.candidates and call.caller.may_use(name))
    listed = list(islice(usable, _LISTED))
    others = f"Models for this key that are: {_quoted(listed)}." if listed else "No model for this key is."
    asked, endpoint = call.request.model[:200], call.request.endpoint
    return Rejection(MODEL_NOT_FOUND, f"The model `{asked}` is not served at {endpoint}. {others}", "model")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


class ModelAccess:
    """Gate: sets `call.routing.route` and the first candidate.

    An unknown model is a 404, one that the key may not use a 403. A key's right to a model covers its aliases.
    """

    def __init__(self, names: ModelNames) -> None:
        self._names = names
        self._exact = names.exact
        self._narrowed = names.narrowed

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Set the route, or reject with 404 or 403."""
        asked = call.request.model
        route = self._exact.get(asked) or self._names.find(asked)
        if route is None:
            return unknown_model(asked, self._names.public, call.caller)
        if not call.caller.may_use(route.name):
            alias = "" if asked == route.name else f", which `{asked}` is an alias of"
            return Rejection(MODEL_NOT_ALLOWED, f"This API key may not use the model `{route.name}`{alias}.", "model")
        if (served := self._narrowed.get(call.request.endpoint.name)) is not None:
            narrow = served[route.name]
            if not narrow.candidates:
                return _not_served(call, served)
            route = narrow if route.encoded == narrow.encoded else narrow.under(route.encoded)
        if bound := call.routing.bound:
            route = route.at(bound)
            if not route.candidates:
                return Rejection(RESPONSE_NOT_FOUND, f"The model `{asked[:200]}` is not served where the response is.")
        call.routing.route = route
        call.routing.candidate = route.candidates[0]
        return None
