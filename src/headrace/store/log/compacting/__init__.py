"""Compaction of the format `log` (docs/decisions/028).

The stream that is appended to is never rewritten. The remaining records of its older entries are copied into a second
stream, `:clean`, under the same ids; one script replaces it with a finished copy and moves the border, `clean` in the
meta. Below the border readers use the copy, above it the log.

`state.py` has the border and when a pass is due, `clean_log.py` the compacted part as readers see it, `cleaner.py` a
pass, `copying.py` its copy, `scripts.py` the atomic steps.
"""
