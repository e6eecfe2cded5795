"""Stored users, ACLs, quotas and organisations, under `<prefix>:security:`, outside every organisation's keys."""
