"""Several nodes with listeners: ports count up on each, every client stays on its listener, nodes share the users."""

from __future__ import annotations

from pathlib import Path
from signal import Signals

from confluent_kafka.admin import AdminClient

from tests.broker_process import wait_until
from tests.logins.secured import ADMIN_PASSWORD, SecuredBroker
from tests.logins.test_tls import served_certificate
from tests.logins.test_users import knows
from tests.nodes_process import node_pids, ports_in_a_row

PATIENCE_S = 30


def test_every_node_has_every_listener(tmp_path: Path) -> None:
    secured = SecuredBroker(tmp_path, nodes=2)
    secured.ports = {"sasl": ports_in_a_row(2), "inside": ports_in_a_row(2)}
    secured.process.settings["listen"] = [
        f"inside=SASL_PLAINTEXT://127.0.0.1:{secured.ports['inside']}",
        f"sasl=SASL_SSL://127.0.0.1:{secured.ports['sasl']},advertised=localhost:{secured.ports['sasl']}",
    ]
    try:
        secured.start()
        assert secured.process.port == secured.ports["inside"], "the first listener is the one that is named"
        found = AdminClient(secured.confluent()).list_topics(timeout=PATIENCE_S)
        at = [(str(broker.host), broker.port) for broker in found.brokers.values()]
        assert sorted(at) == [("localhost", secured.ports["sasl"]), ("localhost", secured.ports["sasl"] + 1)]
        plain = secured.confluent() | {
            "security.protocol": "SASL_PLAINTEXT",
            "bootstrap.servers": secured.address("inside"),
        }
        found = AdminClient(plain).list_topics(timeout=PATIENCE_S)
        assert sorted(broker.port for broker in found.brokers.values()) == [
            secured.ports["inside"],
            secured.ports["inside"] + 1,
        ]
        secured.create_user("ida", "ida's password")
        secured.ports["sasl"] += 1
        wait_until(lambda: knows(secured, "ida", "ida's password"), "the second node does not know her", timeout_s=5)
        for pid in node_pids(secured.process):
            assert ADMIN_PASSWORD.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        first = served_certificate(secured)
        certificate, key = secured.authority.sign("renewed")
        secured.key.write_bytes(key.read_bytes())
        secured.certificate.write_bytes(certificate.read_bytes())
        secured.process.send_signal(Signals.SIGHUP)
        wait_until(lambda: served_certificate(secured) != first, "a node has the old certificate")
        assert secured.process.is_running
    finally:
        secured.process.end()
