"""Consumer groups on the runtime for owned state: what is particular about them when they are stored and asked."""
