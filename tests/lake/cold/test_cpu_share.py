"""The cold reader's share of the CPU: kept on a busy machine, without effect on an idle one, within deadlines."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headrace.lake.cold.cpu_share import BURST_S, CpuShare, waited_for_cores_s

PIECE_S = 0.03
LATER = 3600.0


class Machine:
    """Time, the CPU that the reader used, and how long its threads waited for a core while they ran."""

    def __init__(self, *, waits: float) -> None:
        self.now_s = self.used_s = self.waited_s = 0.0
        self._waits = waits

    def share(self, percent: int, longest_wait_s: float = LATER) -> CpuShare:
        return CpuShare(
            percent,
            longest_wait_s=longest_wait_s,
            clock=lambda: self.now_s,
            cpu_s=lambda: self.used_s,
            waited_s=lambda: self.waited_s,
        )

    def work(self) -> None:
        self.used_s += PIECE_S
        self.waited_s += self._waits * PIECE_S
        self.now_s += (1 + self._waits) * PIECE_S

    def run(self, share: CpuShare, pieces: int) -> None:
        for _ in range(pieces):
            while pause_s := share.pause_s():
                self.now_s += pause_s
            self.work()


@pytest.mark.parametrize("percent", [10, 40, 80])
def test_on_a_busy_machine_the_reader_uses_its_share(percent: int) -> None:
    machine = Machine(waits=0.5)
    machine.run(machine.share(percent), 500)
    allowed_s = percent / 100 * machine.now_s
    assert machine.used_s <= allowed_s + BURST_S + 3 * PIECE_S
    assert machine.used_s >= min(0.6 * machine.now_s, 0.8 * allowed_s)


def test_on_an_idle_machine_it_is_never_held_up() -> None:
    machine = Machine(waits=0.0)
    machine.run(machine.share(10), 500)
    assert machine.now_s == pytest.approx(500 * PIECE_S)


def test_after_a_pause_the_first_pieces_are_not_held_up() -> None:
    machine = Machine(waits=1.0)
    share = machine.share(40)
    machine.run(share, 100)
    machine.now_s += 10
    before_s = machine.now_s
    machine.run(share, 4)
    assert machine.now_s - before_s == pytest.approx(4 * 2 * PIECE_S)


def in_debt(longest_wait_s: float) -> CpuShare:
    """A share of a machine on which time stands still: what was used is never paid back."""
    machine = Machine(waits=1.0)
    share = machine.share(10, longest_wait_s)
    for _ in range(20):
        machine.work()
    assert share.pause_s() > 0
    return share


async def test_a_read_waits_for_the_share_no_longer_than_the_limit() -> None:
    share = in_debt(0.01)
    async with asyncio.timeout(60), share.turn(), share.turn():
        pass


async def test_a_read_that_is_given_up_leaves_the_turn_to_the_next() -> None:
    share = in_debt(LATER)
    async with asyncio.timeout(60):
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01), share.turn():
                    pass


async def test_no_share_is_no_limit() -> None:
    machine = Machine(waits=1.0)
    share = machine.share(0)
    machine.run(machine.share(40), 100)
    async with asyncio.timeout(60), share.turn(), share.turn():
        pass


def test_the_kernel_counts_how_long_threads_wait() -> None:
    before_s = waited_for_cores_s()
    threads = [threading.Thread(target=sum, args=(range(100_000),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert before_s >= 0
    assert waited_for_cores_s() >= 0
