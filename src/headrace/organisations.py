"""The name that a tenant has everywhere: in keys, logins, locators and the lake's folders.

In no room, because all of them agree on it.
"""

DEFAULT_ORGANISATION = "default"
"""The organisation of whoever names none."""
