"""Tokens of a stream's cached batches, which say how a batch can be restored. Used by partition and recovery.

A batch written by this node has the id of its first entry. Without a token a batch cannot be restored: it contains
entries of Redis code whose fields or ids do not follow from their records.
"""

READ = b"+"
"""Batches that were read: of whoever wrote them, each record an entry of its natural id."""
NOT_SERVED = b"*"
"""Begins the token of a batch that readers cannot have as it is: its ids span more than its one time says."""
