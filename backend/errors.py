"""The ways in which starting can end early."""


class Problem(Exception):
    """Something failed that the user can act on; its text is one clear sentence."""


class CannotRunError(Problem):
    """The engine cannot run on this machine at all; the gateway still can."""


class Stopped(Exception):
    """The user asked to stop (Ctrl-C, SIGTERM or a closed terminal)."""
