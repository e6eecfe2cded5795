"""What is stored about who may come in: outside every organisation's keys, under `<prefix>:security:`."""
