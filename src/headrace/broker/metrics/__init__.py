"""The metrics of a node: counted as it works, collected on request."""
