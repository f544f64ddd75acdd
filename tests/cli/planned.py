"""Plans as the command line makes them."""

import argparse

from gateway.cli.bench.options import LoadPlan, describe, plan


def made(*words: str, environ: dict[str, str] | None = None) -> LoadPlan:
    """The plan of these words, for a model `m`."""
    parser = argparse.ArgumentParser()
    describe(parser)
    return plan(parser.parse_args([*words, *(() if "--model" in words else ("--model", "m"))]), environ or {})
