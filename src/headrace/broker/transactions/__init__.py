"""The transactional ids of this node: the runtime's second kind of thing."""
