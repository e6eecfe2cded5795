"""The console's server: uvicorn around the application, on an already bound socket."""

from __future__ import annotations

import asyncio
import logging
import socket

import uvicorn

from headrace.console.app import Application
from headrace.console.settings import ConsoleSettings

_GRACE_S = 1
_CONNECTIONS_MAX = 512
_HEADERS_MAX_BYTES = 32 << 10


def serve(settings: ConsoleSettings, listener: socket.socket, lifeline: socket.socket | None = None) -> None:
    """Serves on an already bound socket, until SIGTERM or until the lifeline closes."""
    config = uvicorn.Config(
        Application(settings).starlette(),
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_CONNECTIONS_MAX,
        h11_max_incomplete_event_size=_HEADERS_MAX_BYTES,
        timeout_graceful_shutdown=_GRACE_S,
        ssl_certfile=settings.tls_certificate or None,
        ssl_keyfile=settings.tls_key or None,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its parent logs start and stop
    server = uvicorn.Server(config)
    # Pages that still wait for the broker after the grace are cut off: uvicorn logs each as an error, with a traceback.
    logging.getLogger("uvicorn.error").addFilter(lambda _: not server.should_exit)

    async def run() -> None:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            server.should_exit = True

        if lifeline is not None:

            def left_alone() -> None:
                loop.remove_reader(lifeline)
                stop()

            loop.add_reader(lifeline, left_alone)  # nothing follows the orders: the socket can only close
        await server.serve(sockets=[listener])

    asyncio.run(run())
