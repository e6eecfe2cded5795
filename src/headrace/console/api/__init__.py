"""The API under /api/v1, a file for each kind of thing; `table.py` lists all endpoints."""
