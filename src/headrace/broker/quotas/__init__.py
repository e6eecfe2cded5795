"""How much clients may use of a node: quotas as they are stored, counted, and answered for."""
