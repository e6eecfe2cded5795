"""Quotas of clients on a node: stored, counted and enforced."""
