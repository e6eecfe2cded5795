"""Clients that do not come from PyPI, each run unchanged against a broker of its own (`make interop`)."""
