"""Messages of this broker's own: what Kafka has no API for. ApiVersions does not list them."""
