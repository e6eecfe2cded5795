"""A browser and a Prometheus, as a node sees them: `python -m bench.watcher PORT` until it is ended.

An open overview with its event stream, the list of topics every 5 seconds as its page asks for it, a scrape every 5
seconds: three times as often as Prometheus does by default.
"""

from __future__ import annotations

import http.client
import sys
import threading
import time

_EVERY_S = 5.0


def main() -> None:
    port = int(sys.argv[1])
    for path in ("/metrics", "/api/v1/topics"):
        threading.Thread(target=_ask, args=(port, path), daemon=True).start()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/api/v1/events")
    answer = connection.getresponse()
    print("watching", flush=True)
    while answer.readline():
        pass


def _ask(port: int, path: str) -> None:
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == http.HTTPStatus.OK
        connection.close()
        time.sleep(_EVERY_S)


if __name__ == "__main__":
    main()
