"""Who may do what: decisions, the table of what each API asks for, and the lines of the audit log."""
