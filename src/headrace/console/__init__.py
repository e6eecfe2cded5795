"""The console: pages in a browser for any Kafka cluster, over a JSON API, in a process of its own.

The rule of this room: it speaks Kafka like any client, with the visitor's login, and reads what nodes expose over HTTP.
Nothing of it runs in a broker, so nothing that a visitor asks for can hold one up.
"""
