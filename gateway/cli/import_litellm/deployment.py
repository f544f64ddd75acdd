"""One entry of LiteLLM's model_list: an upstream and the candidate that it serves."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, get_args
from urllib.parse import urlsplit

from gateway.cli.import_litellm import fields as known
from gateway.cli.import_litellm import values
from gateway.cli.import_litellm.notes import Notes
from gateway.cli.import_litellm.providers import PROVIDERS, UNSPOKEN, Provider, split
from gateway.config.problems import join, quoted
from gateway.config.scalars import BaseUrl, HeaderName, HeaderText

_parse_base_url, _parse_header, _parse_header_text = (
    get_args(kind)[1].parse for kind in (BaseUrl, HeaderName, HeaderText)
)


@dataclass(slots=True)
class Deployment:
    """`upstream` and `candidate` are fields of our config, but for the upstream's name, which comes later."""

    public: str
    place: str
    provider: str
    upstream: dict[str, Any]
    candidate: dict[str, Any]
    limited: bool
    weights: dict[str, Decimal] = field(default_factory=dict)
    order: int | None = None


class _UnusableError(Exception):
    """The entry cannot be served; says where and why."""

    def __init__(self, place: str, message: str) -> None:
        self.place, self.message = place, message


class Deployments:
    """Reads entries; what they cannot say here is told in the notes."""

    def __init__(self, notes: Notes, secrets: values.Secrets, credentials: dict[str, dict[str, Any]]) -> None:
        """`credentials` are the values of LiteLLM's credential_list by name."""
        self._notes, self._secrets, self._credentials = notes, secrets, credentials

    def read(self, entry: Any, place: str) -> Deployment | None:
        """One entry; None where it cannot be served."""
        try:
            return self._read(entry, place)
        except _UnusableError as error:
            self._notes.tell(error.place, error.message)
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
                f"{quoted(public)} stands for many; list each model that clients ask for",
            )
        if values.text(info.get("mode")) not in known.SERVED:
            raise _UnusableError(
                join(place, "model_info.mode"), f"{quoted(str(info['mode']))} is not served; left out"
            )
        inside = join(place, "litellm_params")
        custom = params.get("custom_llm_provider")
        name, sent = split(model.strip(), custom if isinstance(custom, str) else None)
        provider = self._provider(name, model, params, inside)
        upstream = self._upstream(name or "openai", provider, params, info, place)
        self._notes.rest(params, inside, known.PARAMS, known.DEPLOYMENT_ADVICE)
        self._notes.rest(info, join(place, "model_info"), known.INFO, known.DEPLOYMENT_ADVICE)
        return self._made(public.strip(), place, name or "openai", sent, upstream, params, info)

    def _made(
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
            # Rates have been told of already, as the upstream's.
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
        )

    def _with_credential(self, params: dict[str, Any], place: str) -> dict[str, Any]:
        name = params.get("litellm_credential_name")
        if not isinstance(name, str):
            return params
        if name not in self._credentials:
            self._notes.tell(
                join(place, "litellm_params.litellm_credential_name"), f"no {quoted(name)} in credential_list"
            )
        return {**self._credentials.get(name, {}), **params}

    def _provider(self, name: str | None, model: str, params: dict[str, Any], inside: str) -> Provider:
        place = join(inside, "model")
        if name in UNSPOKEN:
            raise _UnusableError(place, f"{quoted(model)}: {UNSPOKEN[name]}")
        if name in PROVIDERS:
            return PROVIDERS[name]
        if params.get("api_base") or params.get("base_url"):
            self._notes.tell(place, f"{quoted(model)}: no known provider; taken for an OpenAI-shaped server")
            return Provider(None, None)
        raise _UnusableError(place, f"{quoted(model)}: no known provider and no api_base; left out")

    def _upstream(
        self, name: str, provider: Provider, params: dict[str, Any], info: dict[str, Any], place: str
    ) -> dict[str, Any]:
        inside, notes = join(place, "litellm_params"), self._notes
        given = params.get("api_base") or params.get("base_url")
        base_url = self._base_url(given, name, inside) if given else provider.base_url
        if base_url is None and provider.base_variable is not None:
            base_url = f"${{{provider.base_variable}}}"
        if base_url is None:
            raise _UnusableError(join(inside, "api_base"), f"{name} needs an address; left out")
        key = self._secrets.reference(params.get("api_key"), f"{name}_KEY", join(inside, "api_key"))
        if key is None and provider.key is not None and (not given or name != "openai"):
            key = f"${{{provider.key}}}"
        rate = {one: values.whole(params, one, inside, notes) for one in ("rpm", "tpm")}
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
            "max_concurrency": values.whole(params, "max_parallel_requests", inside, notes),
            "rate": {one: value for one, value in rate.items() if value is not None},
            "timeouts": {one: value for one, value in timeouts.items() if value is not None},
            "breaker": breaker,
        }
        return {one: value for one, value in fields.items() if value not in (None, {})}

    def _base_url(self, given: Any, provider: str, inside: str) -> str | None:
        address = values.text(given)
        if address is None or values.is_reference(given):
            return address
        place, whole = join(inside, "api_base"), address.rstrip("/")
        for path in ("/chat/completions", "/completions", "/embeddings"):
            whole = whole.removesuffix(path)
        try:
            _parse_base_url(whole)
        except ValueError as error:
            raise _UnusableError(place, str(error)) from None
        if not urlsplit(whole).path and provider != "perplexity":
            self._notes.tell(place, f"has no path; /v1 was added, as {provider} serves it there")
            whole += "/v1"
        return whole

    def _headers(self, params: dict[str, Any], inside: str) -> dict[str, str]:
        headers = {}
        organization = values.text(params.get("organization"))
        if organization is not None and organization.isascii() and organization.isprintable():
            headers["OpenAI-Organization"] = organization
        for field_name in ("headers", "extra_headers"):
            for name, value in values.section(params, field_name, self._notes, inside).items():
                telling = any(part in name.lower() for part in known.TELLING)
                place = join(join(inside, field_name), name)
                shown = self._secrets.reference(value, name, place) if telling else values.text(value)
                try:
                    _parse_header(name)
                    _parse_header_text(shown or "")
                except ValueError as error:
                    self._notes.tell(place, f"{error}; left out")
                    continue
                if shown:
                    headers[name] = shown
        return headers

    def _candidate(
        self, public: str, sent: str, params: dict[str, Any], info: dict[str, Any], place: str
    ) -> dict[str, Any]:
        inside = join(place, "model_info")
        lacking = {
            can
            for can, said in known.CAN.items()
            if info.get(said) is not None and not values.yes(info[said])
        }
        fields = {
            "model": values.text(sent) if sent != public else None,
            "price": self._price({**info, **params}, place),
            "context_window": values.whole(info, "max_input_tokens", inside, self._notes),
            "max_output": values.whole(info, "max_output_tokens", inside, self._notes),
            "capabilities": [can for can in known.CAN if can not in lacking] if lacking else None,
        }
        return {one: value for one, value in fields.items() if value is not None}

    def _price(self, fields: dict[str, Any], place: str) -> dict[str, Decimal] | None:
        names = {
            "input": "input_cost_per_token",
            "output": "output_cost_per_token",
            "cached_input": "cache_read_input_token_cost",
        }
        given = {ours: values.number(fields, theirs, place, self._notes) for ours, theirs in names.items()}
        found = {ours: value for ours, value in given.items() if isinstance(value, Decimal)}
        if not found.keys() & {"input", "output"}:
            return None
        million = {"input": Decimal(0), "output": Decimal(0)} | found
        return {ours: round(value * 10**6, 9) for ours, value in million.items()}


def breaker_of(fields: dict[str, Any], place: str, notes: Notes) -> dict[str, Any]:
    """LiteLLM's cooldown as a breaker: it opens after one failure more than is allowed."""
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
