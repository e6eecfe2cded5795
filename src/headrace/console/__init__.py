"""The console: web pages for any Kafka cluster, with a JSON API, in its own process.

It speaks Kafka like any client, with the visitor's login, and reads what nodes expose over HTTP. None of it runs in a
broker, so no visitor can slow one down.
"""
