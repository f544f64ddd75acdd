"""Other people's proxies, each made to forward to the fake upstream and to do nothing else.

`python -m benchmarks.competitors` installs those of PyPI and npm, as pinned beside this file.
"""
