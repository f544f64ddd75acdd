"""Converts an entry of LiteLLM's model_list into an upstream and a candidate."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, get_args
from urllib.parse import urlsplit

from gateway.cli.import_litellm import values
from gateway.cli.import_litellm.fields import (
    CAPABILITIES,
    DEPLOYMENT_ADVICE,
    INFO,
    OTHER_ENDPOINTS,
    PARAMS,
    SECRET_HEADER_WORDS,
    SERVED,
)
from gateway.cli.import_litellm.notes import Notes
from gateway.cli.import_litellm.providers import AZURE_V1, PROVIDERS, UNSUPPORTED, Provider, split
from gateway.config.problems import join, quoted
from gateway.config.scalars import BaseUrl, HeaderName, HeaderText

_parse_base_url, _parse_header, _parse_header_text = (
    get_args(kind)[1].parse for kind in (BaseUrl, HeaderName, HeaderText)
)


@dataclass(slots=True)
class Deployment:
    """A converted entry. `upstream` and `candidate` are config fields; the upstream gets its name later."""

    public: str
    place: str
    provider: str
    upstream: dict[str, Any]
    candidate: dict[str, Any]
    limited: bool
    weights: dict[str, Decimal] = field(default_factory=dict)
    order: int | None = None
    tags: frozenset[str] = frozenset()


class _UnusableError(Exception):
    """The entry cannot be served: at which path, and why."""

    def __init__(self, place: str, message: str) -> None:
        self.place, self.message = place, message


class Deployments:
    """Reads entries and notes what cannot be converted."""

    def __init__(self, notes: Notes, secrets: values.Secrets, credentials: dict[str, dict[str, Any]]) -> None:
        """`credentials` are the values of LiteLLM's credential_list by name."""
        self._notes, self._secrets, self._credentials = notes, secrets, credentials

    def read(self, entry: Any, place: str) -> Deployment | None:
        """The converted entry; None if it cannot be served."""
        try:
            return self._read(entry, place)
        except _UnusableError as error:
            self._notes.add(error.place, error.message)
            return None

    def _read(self, entry: Any, place: str) -> Deployment:
        if not isinstance(entry, dict) or not isinstance(entry.get("litellm_params"), dict):
            raise _UnusableError(place, "needs model_name and litellm_params; left out")
        public, params = entry.get("model_name"), self._with_credential(entry["litellm_params"], place)
        info = values.section(entry, "model_info", self._notes, place)
        model = params.get("model")
        if not isinstance(public, str) or not isinstance(model, str) or not public.strip():
            raise _UnusableError(place, "needs model_name and litellm_params.model; left out")
        if "*" in public or "*" in model:
            raise _UnusableError(
                join(place, "model_name"),
                f"{quoted(public)} is a pattern; list each model that clients ask for",
            )
        if values.text(info.get("mode")) not in SERVED:
            raise _UnusableError(join(place, "model_info.mode"), f"{quoted(str(info['mode']))} is not served; left out")
        if info.get("mode") is None and (kind := OTHER_ENDPOINTS.search(model)) is not None:
            raise _UnusableError(
                join(place, "litellm_params.model"),
                f"{quoted(model)} has another endpoint by its name ({kind[0]}), which is not served; left out",
            )
        inside = join(place, "litellm_params")
        custom = params.get("custom_llm_provider")
        name, sent = split(model.strip(), custom if isinstance(custom, str) else None)
        provider = self._provider(name, model, params, inside)
        upstream = self._upstream(name or "openai", provider, params, info, place)
        self._notes.add_unconverted(params, inside, PARAMS, DEPLOYMENT_ADVICE)
        self._notes.add_unconverted(info, join(place, "model_info"), INFO, DEPLOYMENT_ADVICE)
        return self._deployment(public.strip(), place, name or "openai", sent, upstream, params, info)

    def _deployment(
        self,
        public: str,
        place: str,
        provider: str,
        sent: str,
        upstream: dict[str, Any],
        params: dict[str, Any],
        info: dict[str, Any],
    ) -> Deployment:
        inside = join(place, "litellm_params")
        weights = {}
        for name in ("weight", "rpm", "tpm"):
            # Wrong rates are noted already, as the upstream's.
            value = values.number(params, name, inside, self._notes if name == "weight" else Notes())
            if isinstance(value, Decimal):
                weights[name] = value
        order = values.number(params, "order", inside, self._notes)
        if provider == "fireworks_ai" and not sent.startswith("accounts/"):
            sent = f"accounts/fireworks/models/{sent}"
        return Deployment(
            public,
            place,
            provider,
            upstream,
            self._candidate(public, sent, params, info, place),
            bool({"rate", "max_concurrency"} & upstream.keys()),
            weights,
            int(order) if isinstance(order, Decimal) else None,
            frozenset(map(str, values.entries(params.get("tags")))),
        )

    def _with_credential(self, params: dict[str, Any], place: str) -> dict[str, Any]:
        name = params.get("litellm_credential_name")
        if not isinstance(name, str):
            return params
        if name not in self._credentials:
            self._notes.add(
                join(place, "litellm_params.litellm_credential_name"), f"no {quoted(name)} in credential_list"
            )
        return {**self._credentials.get(name, {}), **params}

    def _provider(self, name: str | None, model: str, params: dict[str, Any], inside: str) -> Provider:
        place = join(inside, "model")
        if name in AZURE_V1 and _is_v1(params.get("api_base") or params.get("base_url")):
            return AZURE_V1[name]
        if name in UNSUPPORTED:
            raise _UnusableError(place, f"{quoted(model)}: {UNSUPPORTED[name]}")
        if name in PROVIDERS:
            return PROVIDERS[name]
        if params.get("api_base") or params.get("base_url"):
            self._notes.add(place, f"{quoted(model)}: unknown provider; assumed to be a server with OpenAI's API")
            return Provider(None, None)
        raise _UnusableError(place, f"{quoted(model)}: unknown provider and no api_base; left out")

    def _upstream(
        self, name: str, provider: Provider, params: dict[str, Any], info: dict[str, Any], place: str
    ) -> dict[str, Any]:
        inside, notes = join(place, "litellm_params"), self._notes
        address = params.get("api_base") or params.get("base_url")
        base_url = self._base_url(address, name, inside) if address else provider.base_url
        if base_url is None and provider.base_variable is not None:
            base_url = f"${{{provider.base_variable}}}"
        if base_url is None:
            raise _UnusableError(join(inside, "api_base"), f"{name} needs an address; left out")
        key = self._secrets.reference(params.get("api_key"), f"{name}_KEY", join(inside, "api_key"))
        if key is None and provider.key is not None and (not address or name != "openai"):
            key = f"${{{provider.key}}}"
        rate = {field: values.whole_number(params, field, inside, notes) for field in ("rpm", "tpm")}
        timeouts = {
            "first_byte": values.duration(params, "stream_timeout", inside, notes),
            "total": values.duration(params, "timeout", inside, notes),
        }
        breaker = breaker_of(info, join(place, "model_info"), notes)
        fields = {
            "base_url": base_url,
            "kind": provider.kind if provider.kind != "openai" else None,
            "api_key": key,
            "headers": self._headers(params, inside),
            "max_concurrency": values.whole_number(params, "max_parallel_requests", inside, notes),
            "rate": {field: value for field, value in rate.items() if value is not None},
            "timeouts": {field: value for field, value in timeouts.items() if value is not None},
            "breaker": breaker,
        }
        return {field: value for field, value in fields.items() if value not in (None, {})}

    def _base_url(self, value: Any, provider: str, inside: str) -> str | None:
        address = values.text(value)
        if address is None or values.is_reference(value):
            return address
        place, base_url = join(inside, "api_base"), address.rstrip("/")
        for path in ("/chat/completions", "/completions", "/embeddings"):
            base_url = base_url.removesuffix(path)
        try:
            _parse_base_url(base_url)
        except ValueError as error:
            raise _UnusableError(place, str(error)) from None
        if not urlsplit(base_url).path and provider != "perplexity":
            self._notes.add(place, f"has no path; /v1 was added, as {provider} serves it there")
            base_url += "/v1"
        return base_url

    def _headers(self, params: dict[str, Any], inside: str) -> dict[str, str]:
        headers = {}
        organization = values.text(params.get("organization"))
        if organization is not None and organization.isascii() and organization.isprintable():
            headers["OpenAI-Organization"] = organization
        for field_name in ("headers", "extra_headers"):
            for name, value in values.section(params, field_name, self._notes, inside).items():
                secret = any(part in name.lower() for part in SECRET_HEADER_WORDS)
                place = join(join(inside, field_name), name)
                shown = self._secrets.reference(value, name, place) if secret else values.text(value)
                try:
                    _parse_header(name)
                    _parse_header_text(shown or "")
                except ValueError as error:
                    self._notes.add(place, f"{error}; left out")
                    continue
                if shown:
                    headers[name] = shown
        return headers

    def _candidate(
        self, public: str, sent: str, params: dict[str, Any], info: dict[str, Any], place: str
    ) -> dict[str, Any]:
        inside = join(place, "model_info")
        lacking = {
            capability
            for capability, name in CAPABILITIES.items()
            if info.get(name) is not None and not values.yes(info[name])
        }
        fields = {
            "model": values.text(sent) if sent != public else None,
            "price": self._price({**info, **params}, place),
            "context_window": values.whole_number(info, "max_input_tokens", inside, self._notes),
            "max_output": values.whole_number(info, "max_output_tokens", inside, self._notes),
            "capabilities": [name for name in CAPABILITIES if name not in lacking] if lacking else None,
        }
        return {field: value for field, value in fields.items() if value is not None}

    def _price(self, fields: dict[str, Any], place: str) -> dict[str, Decimal] | None:
        names = {
            "input": "input_cost_per_token",
            "output": "output_cost_per_token",
            "cached_input": "cache_read_input_token_cost",
        }
        numbers = {name: values.number(fields, cost, place, self._notes) for name, cost in names.items()}
        costs = {name: value for name, value in numbers.items() if isinstance(value, Decimal)}
        if not costs.keys() & {"input", "output"}:
            return None
        costs = {"input": Decimal(0), "output": Decimal(0)} | costs
        return {name: round(value * 10**6, 9) for name, value in costs.items()}


def _is_v1(address: Any) -> bool:
    return isinstance(address, str) and address.rstrip("/").endswith("/openai/v1")


def breaker_of(fields: dict[str, Any], place: str, notes: Notes) -> dict[str, Any]:
    """LiteLLM's cooldown as a circuit breaker, which opens at the first failure beyond `allowed_fails`."""
    fails = values.number(fields, "allowed_fails", place, notes)
    cooldown = values.duration(fields, "cooldown_time", place, notes)
    breaker: dict[str, Any] = {}
    if isinstance(fails, Decimal):
        breaker["failures"] = int(fails) + 1
    if cooldown is not None:
        breaker["open_for"] = cooldown
        if cooldown.endswith("s") and Decimal(cooldown[:-1]) > 60:
            breaker["max_open_for"] = cooldown
    return breaker
