"""The sockets of a node, bound before anything else is started, and handed from a supervisor to its nodes."""

from __future__ import annotations

import contextlib
import socket
from typing import NamedTuple

import msgspec

from headrace.cli.serve.listening import listen
from headrace.cli.settings.layers import listeners_of
from headrace.cli.settings.table import Settings
from headrace.security.listeners import Listener, show_address


class Listeners(NamedTuple):
    """Where a node listens."""

    kafka: tuple[socket.socket, ...]
    """One per listener, in the same order."""
    http: socket.socket | None

    @classmethod
    def open(cls, settings: Settings, *, with_http: bool = True) -> Listeners:
        """Opens the sockets in the settings; CannotStart if a port is taken."""
        with contextlib.ExitStack() as stack:

            def opened(host: str, port: int, flags: str) -> socket.socket:
                return stack.enter_context(listen(host, port, flags))

            flags = "--listen" if settings.listen else "--"
            kafka = tuple(opened(one.host, one.port, flags) for one in listeners_of(settings))
            wants_http = with_http and settings.http_port
            http = opened(settings.http_host, settings.http_port, "--http-") if wants_http else None
            stack.pop_all()
        return cls(kafka, http)

    @classmethod
    def inherited(cls, descriptors: list[int], settings: Settings) -> Listeners:
        """Adopts sockets that another process opened, by their inherited descriptors."""
        found = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        for one in found:
            one.set_inheritable(False)
        count = len(listeners_of(settings))
        return cls(tuple(found[:count]), found[count] if len(found) > count else None)

    @property
    def descriptors(self) -> list[int]:
        return [found.fileno() for found in self._all]

    def bound(self, settings: Settings) -> list[Listener]:
        """The listeners with their actual ports."""
        return [
            msgspec.structs.replace(listener, port=opened.getsockname()[1])
            for listener, opened in zip(listeners_of(settings), self.kafka, strict=True)
        ]

    def address(self, settings: Settings) -> str:
        """HOST:PORT of the first listener, `default` if there is one."""
        first = self.bound(settings)[0]
        return show_address(first.host, first.port)

    def close(self) -> None:
        for found in self._all:
            found.close()

    @property
    def _all(self) -> list[socket.socket]:
        return [*self.kafka, *([] if self.http is None else [self.http])]
