"""The command line. What runs first here is the check of Python itself.

Older ones cannot read what the commands import, nor may the packages that they need be there. So this file comes
before all of that, and is written in a Python that they can read.
"""

import sys

OLDEST_PYTHON = (3, 11)

if sys.version_info < OLDEST_PYTHON:
    raise SystemExit(
        "headrace needs Python {}.{} or later and this is {}.{}; install a newer one, "
        "then `make PYTHON=python3.11 run`".format(*OLDEST_PYTHON, *sys.version_info[:2])
    )
