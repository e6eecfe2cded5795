"""The PROXY protocol, version 2: a load balancer's header with the client's address. Pure.

https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt
"""

from __future__ import annotations

import ipaddress
import struct

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
HEAD_BYTES = 16
_BODY_MAX_BYTES = 4_096
"""Addresses and what proxies add about TLS take some hundred bytes."""
_VERSION = 2
_LOCAL, _PROXY = 0, 1
_TCP4, _TCP6 = 0x11, 0x21


class ProxyError(Exception):
    """The header is not there, not allowed or cannot be read."""


def body_bytes(head: bytes) -> int:
    """How many bytes follow the head."""
    if head[:12] != SIGNATURE or head[12] >> 4 != _VERSION:
        raise ProxyError("the connection does not begin with a PROXY v2 header")
    size: int = struct.unpack_from(">H", head, 14)[0]
    if size > _BODY_MAX_BYTES:
        raise ProxyError(f"a PROXY header of {size} bytes is too long")
    return size


def peer_of(head: bytes, body: bytes) -> tuple[str, int] | None:
    """The client's address and port; None if the proxy speaks for itself, as it does when it checks our health."""
    command = head[12] & 0x0F
    if command == _LOCAL:
        return None
    if command != _PROXY:
        raise ProxyError(f"the PROXY command {command} is not known")
    try:
        if head[13] == _TCP4:
            address, port = struct.unpack_from(">4s4xH", body)
        elif head[13] == _TCP6:
            address, port = struct.unpack_from(">16s16xH", body)
        else:
            raise ProxyError("the PROXY header is not for TCP")
    except struct.error:
        raise ProxyError("the PROXY header is too short for its addresses") from None
    return str(ipaddress.ip_address(address)), port
