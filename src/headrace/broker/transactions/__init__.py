"""The transactional ids that belong to this node: the runtime's second kind of thing."""
