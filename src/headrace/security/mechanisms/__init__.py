"""The SASL mechanisms as the server speaks them: messages in, messages out. No I/O, no clock, no randomness."""
