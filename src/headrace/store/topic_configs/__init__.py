"""The configs of topics: every one there is, the values it takes, and what they come to. Pure.

They are the store's because the catalogue keeps them and a log is read by them; the broker adds where a default comes
from, checks changes, and shows them.
"""
