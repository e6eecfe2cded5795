"""Who asks, and what they may do: rules alone, without I/O."""
