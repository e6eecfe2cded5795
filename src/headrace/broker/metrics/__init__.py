"""What a node shows of itself at /metrics: counted as it works, collected when somebody asks."""
