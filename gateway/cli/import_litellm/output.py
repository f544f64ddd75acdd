"""Writes the config as YAML, with a comment above each part that says where it comes from."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import yaml

from gateway.cli.import_litellm.models import Named
from gateway.cli.import_litellm.translate import Translated
from gateway.config.problems import printable

_HEAD: Final = """\
# Written by `sluice import-litellm` from {source}. Review it, then run:
#   sluice check --connect
# LiteLLM listens on 0.0.0.0:4000, this gateway on 127.0.0.1:8080 by default:
# server: {{host: 0.0.0.0, port: 4000}}
"""
_FROM: Final = {
    "server": "general_settings",
    "redis": "router_settings or litellm_settings.cache_params",
    "keys": "general_settings.master_key and --keys",
    "retry": "router_settings or litellm_settings",
    "cache": "litellm_settings.cache",
    "log": "litellm_settings",
}
_VARIABLE: Final = re.compile(r"(?<!\$)\$\{(\w+)\}")


def written(result: Translated, source: str) -> str:
    """The text of the file; `source` is the name of LiteLLM's file."""
    parts = [_HEAD.format(source=printable(source))]
    before = ("server", "redis", "keys")
    parts += [_section(name, result.sections[name]) for name in before if result.sections[name]]
    parts += [_named("upstreams", result.upstreams), _named("models", result.models)]
    parts += [_section(name, value) for name, value in result.sections.items() if value and name not in before]
    return "\n".join(parts)


def variables(result: Translated) -> list[str]:
    """The variables that the file needs, sorted by name."""
    parts = [
        result.sections,
        *(part.fields for part in (*result.upstreams.values(), *result.models.values())),
    ]
    return sorted(set(_references(parts)))


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _references(item)
    elif isinstance(value, str):
        yield from _VARIABLE.findall(value)


def _section(name: str, value: Any) -> str:
    return f"# from {_FROM[name]}\n{_yaml({name: value})}"


def _named(name: str, entries: dict[str, Named]) -> str:
    return f"{name}:\n" + "".join(line for key, entry in entries.items() for line in _entry(key, entry))


def _entry(name: str, entry: Named) -> Iterator[str]:
    yield f"  # from {', '.join(map(printable, entry.places))}\n"
    for line in _yaml({name: entry.fields}).splitlines():
        yield f"  {line}\n"


def _yaml(value: Any) -> str:
    # Without YAML aliases: candidates that models share are written out for each.
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _decimal(dumper: yaml.SafeDumper, value: Decimal) -> yaml.ScalarNode:
    shown = f"{value.normalize():f}"
    return dumper.represent_scalar(f"tag:yaml.org,2002:{'float' if '.' in shown else 'int'}", shown)


_Dumper.add_representer(Decimal, _decimal)
