"""Our lake on topics of Apache Kafka: `format("headrace")` and the archive speak Kafka, to whichever broker."""
