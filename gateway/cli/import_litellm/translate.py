"""LiteLLM's whole config as one of ours, in the order in which it is written."""

from typing import Any, Final

from gateway.cli.import_litellm import fields as known
from gateway.cli.import_litellm import settings, values
from gateway.cli.import_litellm.deployment import Deployments
from gateway.cli.import_litellm.fallbacks import add_aliases, add_fallbacks
from gateway.cli.import_litellm.models import Named, models, upstreams
from gateway.cli.import_litellm.notes import Notes
from gateway.config.problems import Problem, join, quoted

_SHUFFLE: Final = "simple-shuffle"


class Translated:
    """The sections of our config that LiteLLM's says anything about, and what could not be taken."""

    def __init__(self) -> None:
        self.sections: dict[str, Any] = {}
        self.upstreams: dict[str, Named] = {}
        self.models: dict[str, Named] = {}
        self.problems: list[Problem] = []


def translated(document: dict[str, Any]) -> Translated:
    """The translation of a document, whose scalars are all text. Without models there is nothing to write."""
    notes, found = Notes(), Translated()
    secrets = values.Secrets(notes, values.references(document))
    router = values.section(document, "router_settings", notes)
    litellm = values.section(document, "litellm_settings", notes)
    general = values.section(document, "general_settings", notes)
    sections = [(router, "router_settings"), (litellm, "litellm_settings")]
    reader = Deployments(notes, secrets, _credentials(document, notes))
    read = (
        reader.read(entry, f"model_list[{i}]")
        for i, entry in enumerate(values.entries(document.get("model_list")))
    )
    deployments = [one for one in read if one is not None]
    found.upstreams, of = upstreams(deployments)
    settings.for_all(found.upstreams, sections, notes)
    strategy = str(router.get("routing_strategy") or _SHUFFLE)
    found.models = models(deployments, of, strategy, "router_settings.routing_strategy", notes)
    add_fallbacks(found.models, sections, notes)
    add_aliases(found.models, router, "router_settings", notes)
    cache, cached_in = settings.cache(litellm, "litellm_settings", secrets, notes)
    found.sections = {
        "server": settings.max_body(general, "general_settings", notes),
        "redis": settings.redis(router, "redis_", "router_settings", secrets, notes) or cached_in,
        "keys": settings.keys(general, "general_settings", secrets, notes),
        "retry": settings.retry(sections, notes),
        "cache": cache,
        "log": settings.log(litellm),
    }
    _tell_rest(document, router, litellm, general, notes)
    found.problems = notes.lines
    return found


def _credentials(document: dict[str, Any], notes: Notes) -> dict[str, dict[str, Any]]:
    found = {}
    for i, one in enumerate(values.entries(document.get("credential_list"))):
        if isinstance(one, dict) and isinstance(one.get("credential_name"), str):
            place = f"credential_list[{i}]"
            found[one["credential_name"]] = values.section(one, "credential_values", notes, place)
    return found


def _tell_rest(
    document: dict[str, Any],
    router: dict[str, Any],
    litellm: dict[str, Any],
    general: dict[str, Any],
    notes: Notes,
) -> None:
    notes.rest(router, "router_settings", known.ROUTER, known.ROUTER_ADVICE)
    notes.rest(litellm, "litellm_settings", known.LITELLM, known.LITELLM_ADVICE)
    notes.rest(general, "general_settings", known.GENERAL, known.GENERAL_ADVICE)
    notes.rest(document, "", known.TOP, known.TOP_ADVICE)
    for name in values.section(document, "environment_variables", notes):
        place = join("environment_variables", name)
        notes.tell(place, f"a config sets no variables; put {quoted(name)} into the environment or .env")
