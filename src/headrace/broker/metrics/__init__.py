"""What a node exposes at /metrics: counted as it works, collected on request."""
