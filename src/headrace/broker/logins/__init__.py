"""Authentication of clients: SASL exchanges, passwords, tokens, certificates, and their audit log."""
