"""The exceptions that end `sluice up` early."""


class Problem(Exception):
    """A failure that the user can act on; the text is one sentence."""


class CannotRunError(Problem):
    """The engine cannot run on this machine. The gateway still can."""


class Stopped(Exception):
    """The user asked to stop (Ctrl-C, SIGTERM or a closed terminal)."""
