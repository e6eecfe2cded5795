"""The SASL mechanisms, server side: messages in, messages out. No I/O, no clock, no randomness."""
