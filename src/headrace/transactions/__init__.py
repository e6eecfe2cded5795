"""The transaction coordinator as a pure machine: how requests change a transactional id.

`table.py` has the states, the transitions and the answers; start there. No I/O, no clock.
"""
