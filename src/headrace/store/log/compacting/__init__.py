"""Compaction of the format `log` (docs/decisions/028).

The stream that is appended to is never rewritten. What is left of its older entries is copied into a second stream,
`:clean`, under the same ids; one script puts a finished copy in its place and moves the border, `clean` in the meta.
Below the border readers read the copy, from it on the log.

`state.py` is the border and when a pass is due, `clean_log.py` the part below it as readers see it, `cleaner.py` a
pass, `copying.py` its copy, `scripts.py` what has to happen at one moment.
"""
