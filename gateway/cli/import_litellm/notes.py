"""Notes about what was not converted and what to do, each with its path in LiteLLM's config."""

from gateway.config.problems import Problem, join


class Notes:
    """Collects the notes."""

    def __init__(self) -> None:
        self.lines: list[Problem] = []

    def add(self, path: str, message: str) -> None:
        """Add a note."""
        self.lines.append(Problem(path, message))

    def add_unconverted(
        self, section: dict[str, object], path: str, converted: frozenset[str], advice: dict[str, str]
    ) -> None:
        """Add a note for each field that is not converted: its advice, or that it has no counterpart."""
        for name, value in section.items():
            if name not in converted and value is not None:
                self.add(join(path, name), advice.get(name, "has no counterpart here; left out"))
