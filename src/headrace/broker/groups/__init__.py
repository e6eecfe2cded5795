"""Consumer groups on the runtime for owned state: what is specific to storing and querying them."""
