"""Converts LiteLLM's whole config, section by section."""

from typing import Any, Final

from gateway.cli.import_litellm import fields, settings, values
from gateway.cli.import_litellm.deployment import Deployments
from gateway.cli.import_litellm.fallbacks import add_aliases, add_fallbacks
from gateway.cli.import_litellm.keys import read_keys
from gateway.cli.import_litellm.models import Named, models, upstreams, without_other_tags
from gateway.cli.import_litellm.notes import Notes
from gateway.config.problems import Problem, join, quoted

_SHUFFLE: Final = "simple-shuffle"


class Translated:
    """The converted sections, and a note for everything that has no counterpart."""

    def __init__(self) -> None:
        self.sections: dict[str, Any] = {}
        self.upstreams: dict[str, Named] = {}
        self.models: dict[str, Named] = {}
        self.problems: list[Problem] = []
        self.left_out: list[str] = []


def translated(document: dict[str, Any], exported_keys: str | None = None) -> Translated:
    """The conversion of a document whose scalars are all text. Without models there is nothing to serve.

    `exported_keys` is the text of an export of the virtual keys. Raises KeysError if it is none.
    """
    notes, result = Notes(), Translated()
    secrets = values.Secrets(notes, values.references(document))
    router = values.section(document, "router_settings", notes)
    litellm = values.section(document, "litellm_settings", notes)
    general = values.section(document, "general_settings", notes)
    sections = [(router, "router_settings"), (litellm, "litellm_settings")]
    reader = Deployments(notes, secrets, _credentials(document, notes))
    entries = (
        reader.read(entry, f"model_list[{i}]") for i, entry in enumerate(values.entries(document.get("model_list")))
    )
    listed = values.entries(document.get("model_list"))
    by_tag = str(router.get("enable_tag_filtering")).lower() != "false"
    deployments = without_other_tags([entry for entry in entries if entry is not None], by_tag, notes)
    result.left_out = _left_out(listed, {deployment.place for deployment in deployments})
    result.upstreams, of = upstreams(deployments)
    settings.for_all(result.upstreams, sections, notes)
    strategy = str(router.get("routing_strategy") or _SHUFFLE)
    result.models = models(deployments, of, strategy, "router_settings.routing_strategy", notes)
    add_fallbacks(result.models, sections, notes)
    add_aliases(result.models, router, "router_settings", notes)
    cache, cached_in = settings.cache(litellm, "litellm_settings", secrets, notes)
    result.sections = {
        "server": settings.max_body(general, "general_settings", notes),
        "redis": settings.one_redis(
            settings.redis(router, "redis_", "router_settings", secrets, notes), cached_in, notes
        ),
        "keys": settings.keys(general, "general_settings", secrets, notes)
        + (read_keys(exported_keys, notes) if exported_keys is not None else []),
        "retry": settings.retry(sections, notes),
        "cache": cache,
        "log": settings.log(litellm),
    }
    _add_unconverted(document, router, litellm, general, notes)
    result.problems = notes.lines
    return result


def _left_out(listed: list[Any], converted: set[str]) -> list[str]:
    """The public names of the entries that were not converted, in their order."""
    names = [
        str(entry.get("model_name")) if isinstance(entry, dict) else "an entry without a name"
        for i, entry in enumerate(listed)
        if f"model_list[{i}]" not in converted
    ]
    return [f"{name} ({names.count(name)} times)" if names.count(name) > 1 else name for name in dict.fromkeys(names)]


def _credentials(document: dict[str, Any], notes: Notes) -> dict[str, dict[str, Any]]:
    credentials = {}
    for i, entry in enumerate(values.entries(document.get("credential_list"))):
        if isinstance(entry, dict) and isinstance(entry.get("credential_name"), str):
            place = f"credential_list[{i}]"
            credentials[entry["credential_name"]] = values.section(entry, "credential_values", notes, place)
    return credentials


def _add_unconverted(
    document: dict[str, Any],
    router: dict[str, Any],
    litellm: dict[str, Any],
    general: dict[str, Any],
    notes: Notes,
) -> None:
    notes.add_unconverted(router, "router_settings", fields.ROUTER, fields.ROUTER_ADVICE)
    notes.add_unconverted(litellm, "litellm_settings", fields.LITELLM, fields.LITELLM_ADVICE)
    notes.add_unconverted(general, "general_settings", fields.GENERAL, fields.GENERAL_ADVICE)
    notes.add_unconverted(document, "", fields.TOP, fields.TOP_ADVICE)
    for name in values.section(document, "environment_variables", notes):
        place = join("environment_variables", name)
        notes.add(place, f"a config sets no variables; put {quoted(name)} into the environment or .env")
