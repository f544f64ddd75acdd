"""Walks the annotations of `model.py` over a document and reports all that does not fit, with its place."""

import functools
import types
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from gateway.config.environment import UNSET
from gateway.config.model import (
    BatchingConfig,
    CacheConfig,
    CandidateConfig,
    Config,
    ModelConfig,
    Section,
    UpstreamConfig,
)
from gateway.config.problems import Problem, did_you_mean, join, quoted
from gateway.config.scalars import Scalar, model_name, upstream_name
from gateway.core.units import Secret

_NAMED: Final = {UpstreamConfig: upstream_name, ModelConfig: model_name}
_NULLS: Final = ("null", "~")


class _Invalid:
    """What a value that was reported reads as, until a default or a stand-in takes its place."""


_INVALID: Final = _Invalid()


@functools.cache
def schema(section: type[Section]) -> dict[str, Any]:
    """The fields of a section with their annotations, in order."""
    hints = get_type_hints(section, include_extras=True)
    return {field: hints[field] for field in section.__struct_fields__}


@functools.cache
def _defaults(section: type[Section]) -> dict[str, Any]:
    fields = msgspec.structs.fields(section)
    return {
        field.name: field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        for field in fields
        if not field.required
    }


def _is_section(wanted: Any) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, Section)


def _stand_in(wanted: Any) -> Any:
    """A value of the wanted type for one that is missing or wrong, so that later checks need no care."""
    origin = get_origin(wanted)
    if origin in (Annotated, Literal):
        return _stand_in(get_args(wanted)[0]) if origin is Annotated else get_args(wanted)[0]
    if _is_section(wanted):
        required = schema(wanted).keys() - _defaults(wanted).keys()
        return wanted(**{field: _stand_in(schema(wanted)[field]) for field in required})
    if wanted is Secret:
        return Secret("")
    return {} if origin is Mapping else (origin or wanted)()


class Reader:
    """Reads one document. Afterwards `problems`, `written` (places) and `configured` (fields) are filled,
    and `replaced` holds the places of whole sections that were wrong and have a stand-in.

    A place is `keys[0].limits.rpm`, its field `keys.limits.rpm`: without the indices and the names that the
    user chose. Values of null, `{}` and `[]` do not count as written.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.written: set[str] = set()
        self.configured: set[str] = set()
        self.replaced: set[str] = set()
        # What a section's absent fields are, where the model's own default is not the answer.
        self._presets: dict[type[Section], dict[str, Any]] = {}

    def config(self, document: dict[str, Any]) -> Config:
        """The Config; one to be used only while `problems` stays empty."""
        values: dict[str, Any] = {}
        self._unknown(schema(Config), document, "")
        # Models last: they start from the batching and cache sections.
        for field in sorted(schema(Config), key="models".__eq__):
            if field == "models":
                inherited = {"batching": values["batching"], "cache": values["cache"]}
                self._presets[ModelConfig] = inherited
                self._presets[BatchingConfig] = msgspec.structs.asdict(inherited["batching"])
                self._presets[CacheConfig] = msgspec.structs.asdict(inherited["cache"])
            values[field] = self._field(Config, field, document, "", "")
        return Config(**values)

    def _field(self, section: type[Section], field: str, given: dict[str, Any], path: str, kind: str) -> Any:
        """A field's value; the default, or a stand-in, where it is absent or wrong."""
        place, name = join(path, field), join(kind, field)
        defaults = _defaults(section) | self._presets.get(section, {})
        wanted = schema(section)[field]
        value: Any = _INVALID
        if field in given:
            if given[field] not in (None, {}, []):
                self.written.add(place)
                self.configured.add(name)
            value = self._value(wanted, given[field], place, name)
        elif field not in defaults:
            self._report(place, "required, but missing")
        if value is not _INVALID:
            return value
        return defaults[field] if field in defaults else _stand_in(wanted)

    def _value(self, wanted: Any, raw: Any, path: str, kind: str) -> Any:
        if raw is UNSET:
            self.replaced.add(path)
            return _INVALID
        origin, arguments = get_origin(wanted), get_args(wanted)
        if origin in (Union, types.UnionType):
            if raw is None or (isinstance(raw, str) and raw in _NULLS):
                return None
            sections = [one for one in arguments if isinstance(raw, dict) and _is_section(one)]
            return self._value(sections[0] if sections else arguments[0], raw, path, kind)
        if origin is Annotated:
            return self._scalar(arguments[1], raw, path)
        if origin is Literal:
            return self._choice(arguments, raw, path)
        if origin in (tuple, frozenset):
            return self._list(origin, arguments[0], raw, path, kind)
        if origin is Mapping:
            return self._mapping(arguments[0], arguments[1], raw, path, kind)
        return self._section(wanted, raw, path, kind)

    def _section(self, section: type[Section], raw: Any, path: str, kind: str) -> Any:
        fields = [field for field in schema(section) if not (section in _NAMED and field == "name")]
        if raw is None:
            raw = {}
        if not isinstance(raw, dict):
            self.replaced.add(path)
            return self._wrong(path, raw, f"must be fields such as {', '.join(fields[:3])}", private=True)
        self._unknown(fields, raw, path)
        values = {field: self._field(section, field, raw, path, kind) for field in fields}
        if section in _NAMED:
            values["name"] = self._presets[section]["name"]
        return section(**values)

    def _mapping(self, key_type: Any, value_type: Any, raw: Any, path: str, kind: str) -> Any:
        if raw is None:
            return {}
        if not isinstance(raw, dict):
            return self._wrong(
                path, raw, "must be names, each with what belongs to it below it", private=True
            )
        named = value_type in _NAMED
        name_rule = Scalar(_NAMED[value_type]) if named else get_args(key_type)[1]
        values = {}
        for key, item in raw.items():
            place = join(path, key)
            self._scalar(name_rule, key, place)
            if named:
                self._presets.setdefault(value_type, {})["name"] = key
            if value_type is ModelConfig:
                self._presets[CandidateConfig] = {"model": key}
            value = self._value(value_type, item, place, kind)
            values[key] = self._named_stand_in(value_type, key) if value is _INVALID else value
        return values

    def _named_stand_in(self, wanted: Any, name: str) -> Any:
        stand_in = _stand_in(wanted)
        return msgspec.structs.replace(stand_in, name=name) if wanted in _NAMED else stand_in

    def _list(self, kind_of_list: Any, wanted: Any, raw: Any, path: str, kind: str) -> Any:
        if raw is None:
            return kind_of_list()
        if not isinstance(raw, list):
            private = isinstance(wanted, type) and issubclass(wanted, Section)
            return self._wrong(
                path, raw, "must be a list, such as [a, b] or lines that begin with -", private=private
            )
        values = [self._value(wanted, item, f"{path}[{i}]", kind) for i, item in enumerate(raw)]
        # The places of the others must stay what they are, so a wrong item is not dropped.
        return kind_of_list(_stand_in(wanted) if value is _INVALID else value for value in values)

    def _choice(self, choices: tuple[str, ...], raw: Any, path: str) -> Any:
        # Tools that rewrite YAML turn a plain off into false.
        choice = "off" if raw == "false" and "off" in choices else raw
        if choice in choices:
            return choice
        hint = did_you_mean(raw, choices) if isinstance(raw, str) else ""
        return self._wrong(path, raw, f"must be one of {', '.join(choices)}", hint=hint)

    def _scalar(self, scalar: Scalar, raw: Any, path: str) -> Any:
        try:
            if isinstance(raw, str):
                return scalar.parse(raw)
            # Let the parser say what is allowed.
            scalar.parse("")
        except ValueError as error:
            return self._wrong(path, raw, str(error), private=scalar.private)
        return self._wrong(path, raw, "must be text")

    def _unknown(self, known: Collection[str], given: dict[str, Any], path: str) -> None:
        for field in given:
            if field not in known:
                self._report(join(path, field), f"unknown field{did_you_mean(field, known)}")

    def _wrong(self, path: str, raw: Any, allowed: str, *, hint: str = "", private: bool = False) -> _Invalid:
        self._report(path, f"{allowed}; found {_found(raw, private)}{hint}")
        return _INVALID

    def _report(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))


def _found(raw: Any, private: bool) -> str:
    if isinstance(raw, str):
        return "text" if private else quoted(raw)
    if raw is None:
        return "nothing"
    return "a list" if isinstance(raw, list) else "fields"
