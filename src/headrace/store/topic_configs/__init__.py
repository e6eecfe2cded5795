"""Topic configs: all of them, their valid values, and the policy that results. Pure.

They belong to the store because the catalogue keeps them and logs are read by them; the broker adds where a default
comes from, checks changes, and shows them.
"""
