"""An S3 server for the checks, and a proxy to it that never rejects a put.

The server is Versity's gateway over a folder, a real one that others run. The way stands for a store that never heard
of conditional puts: it says yes where the server says that the object is there already.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.broker_process import free_port, wait_until

from interop.clients import LAKE_S3

BUCKET = "bucket"
KEY, SECRET = "lake", "lake-secret"
START_S = 30.0


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[int]:
    """The port of a server with one empty bucket."""
    (folder / BUCKET).mkdir(parents=True)
    port = free_port()
    command = [str(LAKE_S3.work_dir / "versitygw"), "--quiet", "--port", f"127.0.0.1:{port}", "posix", str(folder)]
    given = os.environ | {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    server = subprocess.Popen(command, env=given, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: _answers(port), "the S3 server does not respond", START_S)
        yield port
    finally:
        server.terminate()
        server.wait()


def _answers(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1.0)
        connection.request("GET", "/")
        connection.getresponse().read()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def without_conditions(port: int) -> Iterator[int]:
    """The port of a way to the server on which no put is refused."""

    class Way(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def pass_on(self) -> None:
            content = self.rfile.read(int(self.headers.get("content-length", 0)))
            server = http.client.HTTPConnection("127.0.0.1", port, timeout=30.0)
            server.request(self.command, self.path, content, dict(self.headers.items()))
            answer = server.getresponse()
            said = answer.read()
            if answer.status in (HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED):
                self.send_response(HTTPStatus.OK)
                self.send_header("etag", '"overwritten"')
                said = b""
            else:
                self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                    self.send_header(name, value)
            length = answer.getheader("content-length", "0") if self.command == "HEAD" else str(len(said))
            self.send_header("content-length", length)
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = pass_on

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    way = ThreadingHTTPServer(("127.0.0.1", 0), Way)
    threading.Thread(target=way.serve_forever, daemon=True).start()
    try:
        yield way.server_address[1]
    finally:
        way.shutdown()
        way.server_close()
