"""Parses YAML into plain dicts, lists, text and None: strictly, within bounds, every scalar as text.

The schema knows the type of each scalar, so YAML's guesses (`off` is false, `1:30` is 90, `012` is 10, `1.10`
loses its zero) never apply; only a plain `null`, `~` or nothing is None. Tags and duplicate keys are
rejected, anchors and merge keys work.
"""

from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, ScalarNode, SequenceNode

from gateway.config.problems import Problem, join, quoted
from gateway.config.yaml_errors import at, explained

_TEXT: Final = "tag:yaml.org,2002:str"
_MERGE: Final = "tag:yaml.org,2002:merge"
_MOST_MERGED: Final = 100


class BrokenYamlError(Exception):
    """The text is not usable YAML; the message has line and column and quotes no value."""


class _Loader(yaml.SafeLoader):
    """SafeLoader that makes every scalar except null text; tags and duplicate keys become problems."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.problems: list[Problem] = []
        self._place: list[Any] = []

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._place.append(index)
        try:
            return super().compose_node(parent, index)
        finally:
            self._place.pop()

    def get_event(self) -> Any:
        event: Any = super().get_event()  # type: ignore[no-untyped-call]
        if getattr(event, "tag", None) is not None:
            self._report(event, "tags (text that begins with !) are not allowed; put such text in quotes")
            event.tag = None
            if isinstance(event, yaml.ScalarEvent):
                event.implicit = (False, True)
        return event

    def compose_mapping_node(self, anchor: Any) -> MappingNode:
        # Checked before construction, which folds in merged keys; those may repeat.
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                self._report(key, "a field's name must be text")
            elif key.tag != _MERGE:
                key.tag = _TEXT
                if key.value in lines:
                    message = f"{quoted(key.value)} is set twice; the first is in line {lines[key.value]}"
                    self._report(key, message, below=key.value)
                lines[key.value] = key.start_mark.line + 1
        node.value = [pair for pair in node.value if isinstance(pair[0], ScalarNode)]
        return node

    def flatten_mapping(self, node: MappingNode) -> None:
        for key, value in node.value:
            if key.tag == _MERGE and isinstance(value, SequenceNode) and len(value.value) > _MOST_MERGED:
                raise BrokenYamlError(_at(value.start_mark, f"more than {_MOST_MERGED} mappings merged at once"))
        super().flatten_mapping(node)
        # With repeats, merged lists of lists of mappings would grow without bound; the last value wins.
        node.value = list({key.value: (key, value) for key, value in node.value}.values())

    def _report(self, at: Any, message: str, below: str | None = None) -> None:
        path = ""
        for index in self._place:
            if isinstance(index, ScalarNode):
                path = join(path, index.value)
            elif index is not None:
                path += f"[{index}]"
        if below is not None:
            path = join(path, below)
        self.problems.append(Problem(path, _at(at.start_mark, message)))


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag.endswith((":null", ":merge"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _at(mark: Any, message: str) -> str:
    return at(mark.line, mark.column, message)


def parse(text: str) -> tuple[Any, list[Problem]]:
    """The document as dicts with text keys, lists, text and None, and the problems that parsing survives.

    BrokenYamlError, with line and column, when the text cannot be parsed at all.
    """
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_data(), loader.problems
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise BrokenYamlError(explained(error, text)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise BrokenYamlError(f"line {line}: a character that YAML does not allow") from None
    except (ValueError, OverflowError):
        # PyYAML lets these escape for code points and version numbers out of range.
        raise BrokenYamlError("an escape sequence or a %YAML line contains a number out of range") from None
    except RecursionError:
        raise BrokenYamlError("nested too deeply") from None
