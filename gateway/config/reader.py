"""Reads a document into a `Config` along the annotations of `model.py` and reports every misfit."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import msgspec

from gateway.config.environment import UNSET
from gateway.config.model import (
    BatchingConfig,
    CacheConfig,
    CandidateConfig,
    Config,
    ModelConfig,
    Section,
)
from gateway.config.problems import Problem, did_you_mean, join, quoted
from gateway.config.scalars import Scalar
from gateway.config.schema import NAMED, annotations, defaults, file_fields, is_section, is_union
from gateway.config.suggestions import suggestion
from gateway.core.units import Secret

_NULLS: Final = ("null", "~")
_FORMER_CHOICES: Final = {"lean": "httptools"}


class _Invalid:
    """What a reported value reads as, until a default or a stand-in replaces it."""


_INVALID: Final = _Invalid()


def _stand_in(annotation: Any) -> Any:
    """A value of the right type for a missing or wrong one, so that later checks need no special case."""
    origin = get_origin(annotation)
    if origin in (Annotated, Literal):
        return _stand_in(get_args(annotation)[0]) if origin is Annotated else get_args(annotation)[0]
    if is_section(annotation):
        required = annotations(annotation).keys() - defaults(annotation).keys()
        return annotation(**{name: _stand_in(annotations(annotation)[name]) for name in required})
    if annotation is Secret:
        return Secret("")
    return {} if origin is Mapping else (origin or annotation)()


class Reader:
    """Reads one document and collects what later checks need.

    A path such as `keys[0].limits.rpm` says where a value is; its kind, `keys.limits.rpm`, leaves out the
    indices and the names that the user chose. `problems` lists the misfits. `written` has the paths and
    `configured` the kinds of the fields with a value (null, `{}` and `[]` are none). `replaced` has the paths
    of sections that were wrong as a whole and are stand-ins now.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.written: set[str] = set()
        self.configured: set[str] = set()
        self.replaced: set[str] = set()
        # Defaults that depend on the document; they override the constants of the struct.
        self._presets: dict[type[Section], dict[str, Any]] = {}

    def config(self, document: dict[str, Any]) -> Config:
        """The Config; use it only when `problems` is empty."""
        values: dict[str, Any] = {}
        self._report_unknown(file_fields(Config), document, "", "")
        # Models last: they start from the batching and cache sections.
        for name in sorted(file_fields(Config), key="models".__eq__):
            if name == "models":
                inherited = {"batching": values["batching"], "cache": values["cache"]}
                self._presets[ModelConfig] = inherited
                self._presets[BatchingConfig] = msgspec.structs.asdict(inherited["batching"])
                self._presets[CacheConfig] = msgspec.structs.asdict(inherited["cache"])
            values[name] = self._field(Config, name, document, "", "")
        return Config(**values)

    def _field(self, section: type[Section], name: str, raw: dict[str, Any], path: str, kind: str) -> Any:
        """The value of a field of `raw`; its default, or a stand-in, where it is absent or wrong."""
        field_path, field_kind = join(path, name), join(kind, name)
        absent = defaults(section) | self._presets.get(section, {})
        annotation = annotations(section)[name]
        value: Any = _INVALID
        if name in raw:
            if raw[name] not in (None, {}, []):
                self.written.add(field_path)
                self.configured.add(field_kind)
            value = self._value(annotation, raw[name], field_path, field_kind)
        elif name not in absent:
            self._report(field_path, "required, but missing")
        if value is not _INVALID:
            return value
        return absent[name] if name in absent else _stand_in(annotation)

    def _value(self, annotation: Any, raw: Any, path: str, kind: str) -> Any:
        if raw is UNSET:
            self.replaced.add(path)
            return _INVALID
        origin, arguments = get_origin(annotation), get_args(annotation)
        if is_union(annotation):
            if raw is None or (isinstance(raw, str) and raw in _NULLS):
                return None
            sections = [option for option in arguments if isinstance(raw, dict) and is_section(option)]
            return self._value(sections[0] if sections else arguments[0], raw, path, kind)
        if origin is Annotated:
            return self._scalar(arguments[1], raw, path)
        if origin is Literal:
            return self._choice(arguments, raw, path)
        if origin in (tuple, frozenset):
            return self._list(origin, arguments[0], raw, path, kind)
        if origin is Mapping:
            return self._mapping(arguments[0], arguments[1], raw, path, kind)
        return self._section(annotation, raw, path, kind)

    def _section(self, section: type[Section], raw: Any, path: str, kind: str) -> Any:
        names = list(file_fields(section))
        if raw is None:
            raw = {}
        if not isinstance(raw, dict):
            self.replaced.add(path)
            return self._wrong(path, raw, f"must be fields such as {', '.join(names[:3])}", private=True)
        self._report_unknown(names, raw, path, kind)
        values = {name: self._field(section, name, raw, path, kind) for name in names}
        if section in NAMED:
            values["name"] = self._presets[section]["name"]
        return section(**values)

    def _mapping(self, key_type: Any, value_type: Any, raw: Any, path: str, kind: str) -> Any:
        if raw is None:
            return {}
        if not isinstance(raw, dict):
            return self._wrong(path, raw, "must be names, each with its fields below it", private=True)
        named = value_type in NAMED
        key_scalar = Scalar(NAMED[value_type]) if named else get_args(key_type)[1]
        values = {}
        for key, item in raw.items():
            item_path = join(path, key)
            self._scalar(key_scalar, key, item_path)
            if named:
                self._presets.setdefault(value_type, {})["name"] = key
            if value_type is ModelConfig:
                self._presets[CandidateConfig] = {"model": key}
            value = self._value(value_type, item, item_path, kind)
            values[key] = self._named_stand_in(value_type, key) if value is _INVALID else value
        return values

    def _named_stand_in(self, annotation: Any, name: str) -> Any:
        stand_in = _stand_in(annotation)
        return msgspec.structs.replace(stand_in, name=name) if annotation in NAMED else stand_in

    def _list(self, list_type: Any, annotation: Any, raw: Any, path: str, kind: str) -> Any:
        if raw is None:
            return list_type()
        if not isinstance(raw, list):
            allowed = "must be a list, such as [a, b] or lines that begin with -"
            return self._wrong(path, raw, allowed, private=is_section(annotation))
        values = [self._value(annotation, item, f"{path}[{i}]", kind) for i, item in enumerate(raw)]
        # A wrong item is replaced, not dropped: the indices of the items after it must stay right.
        return list_type(_stand_in(annotation) if value is _INVALID else value for value in values)

    def _choice(self, choices: tuple[str, ...], raw: Any, path: str) -> Any:
        # Tools that rewrite YAML turn a plain off into false.
        choice = "off" if raw == "false" and "off" in choices else raw
        if choice in choices:
            return choice
        hint = ""
        if isinstance(raw, str):
            former = _FORMER_CHOICES.get(raw)
            hint = did_you_mean(former if former is not None and former in choices else raw, choices)
        return self._wrong(path, raw, f"must be one of {', '.join(choices)}", hint=hint)

    def _scalar(self, scalar: Scalar, raw: Any, path: str) -> Any:
        try:
            if isinstance(raw, str):
                return scalar.parse(raw)
            scalar.parse("")  # its error says what is allowed
        except ValueError as error:
            return self._wrong(path, raw, str(error), private=scalar.private)
        return self._wrong(path, raw, "must be text")

    def _report_unknown(self, known: Collection[str], raw: dict[str, Any], path: str, kind: str) -> None:
        for name in raw:
            if name not in known:
                self._report(join(path, name), f"unknown field{suggestion(kind, name, known)}")

    def _wrong(self, path: str, raw: Any, allowed: str, *, hint: str = "", private: bool = False) -> _Invalid:
        self._report(path, f"{allowed}; found {_described(raw, private)}{hint}")
        return _INVALID

    def _report(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))


def _described(raw: Any, private: bool) -> str:
    if isinstance(raw, str):
        return "text" if private else quoted(raw)
    if raw is None:
        return "nothing"
    return "a list" if isinstance(raw, list) else "fields"
