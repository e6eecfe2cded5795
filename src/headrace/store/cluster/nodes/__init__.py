"""Which nodes are alive, how clients reach them, and which of them leads what."""
