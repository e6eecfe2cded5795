"""The API under /api/v1, one file per kind of resource; `table.py` lists all endpoints."""
