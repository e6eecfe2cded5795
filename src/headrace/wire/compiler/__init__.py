"""The source of the functions that `codec.py` compiles: decoders and encoders of one message in one version."""
