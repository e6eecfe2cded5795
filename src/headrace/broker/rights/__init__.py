"""Authorization: decisions, the table of rights that each API needs, and the audit log."""
