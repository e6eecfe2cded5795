"""`make demo`: the whole story on one machine, each number computed in more than one way and compared at the end."""
