"""Messages of this broker's own APIs, which Kafka does not have. ApiVersions does not list them."""
