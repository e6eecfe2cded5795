"""kcat, the command line of librdkafka as Debian ships it: an older library than the one on PyPI."""
