"""Consumer groups on the runtime for owned state: storing and querying them."""
