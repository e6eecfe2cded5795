"""Three nodes under many small requests, and tail readers by hand, while nodes and the store are killed or frozen."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from signal import Signals

import pytest

from headrace.client.errors import BrokerUnreachable
from headrace.wire.batch import read_header
from headrace.wire.messages.fetch import PartitionData
from headrace.wire.records import decode_batch
from tests.broker.peers import batches_of, connect, fetch
from tests.broker_process import BrokerProcess, wait_until
from tests.conftest import StartBroker, StartRedis
from tests.faults.several_nodes import PLACES, Nodes, under_load
from tests.faults.test_two_brokers import leaders_of, nodes_of
from tests.faults.witnesses import Place, read_log

LEASE_MS = 3_000


class TailReader:
    """Waits at the end of one partition by long polls at its leader, in a thread; no answer may be ahead of itself."""

    def __init__(self, nodes: Nodes, place: Place) -> None:
        self.place = place
        self.read: dict[int, bytes] = {}
        self.failures: list[str] = []
        self._nodes = nodes
        self._next = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tail of {place}")
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow(self._leader())
            except (BrokerUnreachable, IndexError, KeyError, OSError):
                self._stop.wait(0.1)  # it is dying, or has died
            except AssertionError as error:
                self.failures.append(f"{self.place}: {error}")
                return

    def _leader(self) -> BrokerProcess:
        asked = random.choice([broker for broker in self._nodes.all if broker.is_running])
        return self._nodes.all[leaders_of(asked, self.place[0])[self.place[1]]]

    def _follow(self, leader: BrokerProcess) -> None:
        topic, number = self.place
        with connect(leader, timeout_s=5) as connection:
            while not self._stop.is_set():
                data = fetch(connection, topic, {number: self._next}, max_wait_ms=300, min_bytes=1)[number]
                if data.error_code:
                    self._stop.wait(0.05)
                    return
                self._take(data)

    def _take(self, data: PartitionData) -> None:
        assert data.high_watermark >= self._next, f"the high watermark {data.high_watermark} is before {self._next}"
        for batch in batches_of(data):
            is_control = read_header(batch).is_control  # it carries readers over a gap, and clients do not show it
            for record in decode_batch(batch):
                assert record.offset < data.high_watermark, f"{record.offset} is beyond {data.high_watermark}"
                if record.offset < self._next:
                    continue  # its batch begins earlier
                if not is_control:
                    self.read[record.offset] = record.value or b""
                self._next = record.offset + 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def check(self, addresses: str) -> None:
        """What was read is in the log, where it was read."""
        assert not self.failures
        log = read_log(addresses, self.place)
        assert self.read.items() <= log.items()
        assert self.read.keys() == {offset for offset in log if offset < self._next}


def are_two(nodes: Iterable[BrokerProcess]) -> None:
    """Returns once two nodes know that they are alone."""
    both = list(nodes)
    wait_until(lambda: all(len(nodes_of(one)) == 2 for one in both), "nobody takes over")


@pytest.mark.faults
@pytest.mark.timeout(400)
def test_many_small_requests_survive_kills_and_stops_of_nodes_and_store(
    start_broker: StartBroker, start_redis: StartRedis
) -> None:
    store = start_redis("always")
    nodes = Nodes(start_broker, store, node_lease_ms=LEASE_MS)
    readers = [TailReader(nodes, place) for place in PLACES]
    try:
        with under_load(nodes, pause_s=0.001) as load:
            for victim in nodes.all:
                victim.kill()
                nodes.know_each_other()
                load.settles()
                victim.start()
                nodes.know_each_other()

                victim.send_signal(Signals.SIGSTOP)
                are_two(broker for broker in nodes.all if broker is not victim)
                load.sender.goes_on()
                victim.send_signal(Signals.SIGCONT)
                nodes.know_each_other()
                load.settles()

                store.stop(Signals.SIGKILL)
                store.start()
                load.settles()
    finally:
        for reader in readers:
            reader.stop()
    for reader in readers:
        reader.check(nodes.addresses)
    assert all("Traceback" not in broker.log for broker in nodes.all)
