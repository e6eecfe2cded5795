"""State that one node owns, as it is stored: groups and transactional ids, and the groups' mirrors in Redis."""
