"""Principals, authentication mechanisms, ACLs and quotas: pure rules, without I/O."""
