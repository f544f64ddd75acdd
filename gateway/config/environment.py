"""`${NAME}`, `${NAME:-default}` and `os.environ/NAME` in a config's texts, filled in from the environment."""

import re
from collections.abc import Mapping
from typing import Any, Final

from gateway.config.problems import Problem, join

_DEEPEST: Final = 32
_MOST_NODES: Final = 100_000
_LITELLM: Final = "os.environ/"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
# `$${` stands for a plain `${`. A default ends at the first brace and cannot hold another reference.
_REFERENCE: Final = re.compile(
    r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]{0,127})(?::-((?:(?!\$\{)[^}])*))?\}|\$\{", re.ASCII
)


class Blank(str):
    """An empty text that a reference's own default gave: left out on purpose."""

    __slots__ = ()


class Unset:
    """Stands where a reference could not be resolved; the problem is already told."""


UNSET: Final = Unset()


class TooLargeError(Exception):
    """The document is nested too deeply, or too large once its anchors are followed."""


class Expander:
    """Copies a document with its references filled in; what cannot be is listed in `problems`."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._nodes = 0
        self.problems: list[Problem] = []

    def expand(self, node: Any, path: str = "", depth: int = 0) -> Any:
        """The copy of `node`. TooLargeError bounds what anchors can multiply, cycles among them."""
        self._nodes += 1
        if depth > _DEEPEST:
            raise TooLargeError(f"nested more than {_DEEPEST} levels deep")
        if self._nodes > _MOST_NODES:
            raise TooLargeError(f"more than {_MOST_NODES} values once its anchors are followed")
        if isinstance(node, dict):
            return {key: self.expand(value, join(path, key), depth + 1) for key, value in node.items()}
        if isinstance(node, list):
            return [self.expand(value, f"{path}[{i}]", depth + 1) for i, value in enumerate(node)]
        return self._text(node, path) if isinstance(node, str) else node

    def _text(self, text: str, path: str) -> str | Unset:
        if text.startswith(_LITELLM):
            return self._named(text.removeprefix(_LITELLM), path)
        parts: list[str] = []
        end = 0
        defaulted = False
        for match in _REFERENCE.finditer(text):
            parts.append(text[end : match.start()])
            end = match.end()
            name, default = match[1], match[2]
            if match[0] == "$${":
                parts.append("${")
            elif name is None:
                self._report(
                    path, "a ${ without a name and a closing brace; write ${NAME}, ${NAME:-default} or $${"
                )
                return UNSET
            elif default is not None and not self._environ.get(name):
                # As in a shell, an empty variable takes the default too.
                parts.append(default)
                defaulted = True
            elif name in self._environ:
                parts.append(self._environ[name])
            else:
                return self._unset(name, path)
        filled = "".join(parts) + text[end:]
        return self._checked(Blank() if defaulted and not filled else filled, path)

    def _named(self, name: str, path: str) -> str | Unset:
        if _NAME.fullmatch(name) is None:
            self._report(
                path, f"after {_LITELLM} a variable's name is expected, such as {_LITELLM}OPENAI_API_KEY"
            )
            return UNSET
        return self._checked(self._environ[name], path) if name in self._environ else self._unset(name, path)

    def _checked(self, text: str, path: str) -> str | Unset:
        try:
            text.encode()
        except UnicodeEncodeError:
            self._report(path, "holds bytes or escapes that are no Unicode text")
            return UNSET
        return text

    def _unset(self, name: str, path: str) -> Unset:
        self._report(path, f"environment variable {name} is not set")
        return UNSET

    def _report(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))
