"""Compaction of the format `stream`: `compaction.py`, its `state.py` and `scripts.py`."""
