"""The command line. Importing it first checks the version of Python.

An older Python cannot parse the commands' modules and may lack their packages. So this file runs before any of that,
and uses only syntax that older versions understand.
"""

import sys

OLDEST_PYTHON = (3, 11)

if sys.version_info < OLDEST_PYTHON:
    raise SystemExit(
        "headrace needs Python {}.{} or later and this is {}.{}; install a newer one, "
        "then `make PYTHON=python3.11 run`".format(*OLDEST_PYTHON, *sys.version_info[:2])
    )
