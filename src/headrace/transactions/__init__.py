"""The transaction coordinator as a pure machine: what a request makes of a transactional id.

`table.py` has the states, the moves between them and the answers; start there. No I/O, no clock.
"""
