"""What could not be taken over, and what to do about it: a line each, with its place in LiteLLM's config."""

from gateway.config.problems import Problem, join


class Notes:
    """Collects them."""

    def __init__(self) -> None:
        self.lines: list[Problem] = []

    def tell(self, place: str, message: str) -> None:
        """One line."""
        self.lines.append(Problem(place, message))

    def rest(
        self, section: dict[str, object], place: str, taken: frozenset[str], advice: dict[str, str]
    ) -> None:
        """A line for each field that was not taken: its own advice, or that there is no counterpart."""
        for name, value in section.items():
            if name not in taken and value is not None:
                self.tell(join(place, name), advice.get(name, "has no counterpart here; left out"))
