"""Which public model is meant, and whether this key may use it."""

from collections.abc import Mapping

from gateway.core.call import Call, Route
from gateway.core.errors import MODEL_NOT_ALLOWED, MODEL_NOT_FOUND, Rejection


class ModelAccess:
    """Gate: sets `call.route` and the candidate to begin with.

    Names match exactly; an unknown name is told apart from a forbidden one.
    """

    def __init__(self, routes: Mapping[str, Route]) -> None:
        self._routes = routes

    def admit(self, call: Call, now: float) -> Rejection | None:
        """Find the route, or refuse with 404 or 403."""
        route = self._routes.get(call.model)
        if route is None:
            shown = call.model[:200]
            return Rejection(
                MODEL_NOT_FOUND, f"The model `{shown}` does not exist. GET /v1/models lists them.", "model"
            )
        if call.caller is not None and not call.caller.may_use(route.name):
            return Rejection(
                MODEL_NOT_ALLOWED, f"This API key may not use the model `{route.name}`.", "model"
            )
        call.route = route
        call.candidate = route.candidates[0]
        return None
