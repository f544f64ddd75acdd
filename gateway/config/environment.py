"""Expands `${NAME}`, `${NAME:-default}` and `os.environ/NAME` in a config's texts from the environment."""

import re
from collections.abc import Mapping
from typing import Any, Final

from gateway.config.problems import Problem, join

_DEEPEST: Final = 32
_MOST_NODES: Final = 100_000
_LITELLM: Final = "os.environ/"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
# `$${` stands for a plain `${`. A default ends at the first brace and cannot hold another reference.
_REFERENCE: Final = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]{0,127})(?::-((?:(?!\$\{)[^}])*))?\}|\$\{", re.ASCII)


# What a reference is written like elsewhere; the last alternative needs a name in capitals.
_FOREIGN: Final = re.compile(
    r"\$\(?([A-Za-z_][A-Za-z0-9_]*)\)?|%([A-Za-z_][A-Za-z0-9_]*)%"
    r"|\$?\{\{\s*(?:env\.|secrets\.)?([A-Za-z_][A-Za-z0-9_]*)\s*\}\}"
    r"|(?:\$?env[:.]|process\.env\.|ENV\.|os\.environ\.|env://)([A-Za-z_][A-Za-z0-9_]*)"
    r"|(?:os\.environ|os\.getenv|ENV|env|process\.env)[\[(][\"']([A-Za-z_][A-Za-z0-9_]*)[\"'][\])]"
    r"|\{([A-Z][A-Z0-9_]*_[A-Z0-9_]+)\}",
    re.ASCII,
)
# The same inside a text, such as `Bearer $NAME` or `redis://:$NAME@host`.
_EMBEDDED: Final = re.compile(r"(?:^|[\s:/@])\$([A-Z_][A-Z0-9_]{2,})(?=$|[\s:/@])", re.ASCII)
_TELLING: Final = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASS", "PW", "URL", "HOST", "PORT", "BASE")


class Blank(str):
    """An empty text from the default of a reference, such as `${NAME:-}`: blank on purpose."""

    __slots__ = ()


class Unset:
    """Replaces a text whose reference could not be resolved; the problem is reported already."""


UNSET: Final = Unset()


class TooLargeError(Exception):
    """The document is nested too deeply, or too large once its anchors are followed."""


class Expander:
    """Copies a document and expands its references.

    `problems` lists those that cannot be resolved, `warnings` texts that look like a reference and are none.
    `empty` has the name of the empty variable in a text, by the text's path.
    """

    def __init__(self, environ: Mapping[str, str], dotenv: str = ".env") -> None:
        """`dotenv` is the path of the file that may set variables, for messages."""
        self._environ = environ
        self._dotenv = dotenv
        self._nodes = 0
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.empty: dict[str, str] = {}

    def expand(self, node: Any, path: str = "", depth: int = 0) -> Any:
        """The copy of `node`. TooLargeError for cycles of anchors, and for anchors that multiply too far."""
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
        self._warn_of_foreign(text, path)
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
                self._report(path, "a ${ without a name and a closing brace; write ${NAME}, ${NAME:-default} or $${")
                return UNSET
            elif default is not None and not self._environ.get(name):
                # As in a shell, an empty variable takes the default too.
                parts.append(default)
                defaulted = True
            elif name in self._environ:
                parts.append(self._filled(name, path))
            else:
                return self._unset(name, path)
        filled = "".join(parts) + text[end:]
        return self._checked(Blank() if defaulted and not filled else filled, path)

    def _named(self, name: str, path: str) -> str | Unset:
        if _NAME.fullmatch(name) is None:
            self._report(path, f"{_LITELLM} needs the name of a variable after it, such as {_LITELLM}OPENAI_API_KEY")
            return UNSET
        return self._checked(self._filled(name, path), path) if name in self._environ else self._unset(name, path)

    def _filled(self, name: str, path: str) -> str:
        if not self._environ[name].strip():
            self.empty.setdefault(path, name)
        return self._environ[name]

    def _warn_of_foreign(self, text: str, path: str) -> None:
        """Warn of `$NAME` and the like, which stay as they are."""
        match = _FOREIGN.fullmatch(text) or _EMBEDDED.search(text)
        if match is None:
            return
        name = next(group for group in match.groups() if group is not None)
        # Without such a sign it may be a secret that only looks like a name: not a word of it is shown.
        known = name in self._environ or name.upper().endswith(_TELLING)
        written = match[0].strip(" :/@") if known else "a text like $NAME"
        shown = f'"{written}"' if known else written
        self.warnings.append(f"{path}: {shown} is taken as it stands; write ${{{name if known else 'NAME'}}}")

    def _checked(self, text: str, path: str) -> str | Unset:
        try:
            text.encode()
        except UnicodeEncodeError:
            self._report(path, "contains bytes or escapes that are not Unicode text")
            return UNSET
        return text

    def _unset(self, name: str, path: str) -> Unset:
        self._report(path, f"environment variable {name} is not set; export it, or put it into {self._dotenv}")
        return UNSET

    def _report(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))
