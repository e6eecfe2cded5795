"""A broker with logins for tests: a listener per protocol, an administrator, keys for tokens, and clients' configs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from headrace.client import Cluster
from headrace.client.connection import ClientSecurity
from headrace.client.sasl import Sasl
from headrace.client.users import UserAdmin
from tests.broker_process import BrokerProcess, free_port
from tests.certificates import Authority

ADMIN, ADMIN_PASSWORD = "root", "the-root-password-9Zq"
ISSUER, AUDIENCE = "https://issuer.example.com", "kafka"


class TokenSigner:
    """Somebody who signs tokens; its public keys are `jwks_file`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.keys: dict[str, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey] = {
            "RS256": rsa.generate_private_key(65537, 2048),
            "ES256": ec.generate_private_key(ec.SECP256R1()),
        }
        self.jwks_file = folder / "jwks.json"
        self.publish()

    def publish(self) -> None:
        rsa_key, ec_key = self.keys["RS256"], self.keys["ES256"]
        assert isinstance(rsa_key, rsa.RSAPrivateKey)
        assert isinstance(ec_key, ec.EllipticCurvePrivateKey)
        rows = [
            jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key.public_key(), as_dict=True) | {"kid": "RS256", "use": "sig"},
            jwt.algorithms.ECAlgorithm.to_jwk(ec_key.public_key(), as_dict=True) | {"kid": "ES256"},
        ]
        self.jwks_file.write_text(json.dumps({"keys": rows}))

    def token(self, user: str, *, algorithm: str = "RS256", lifetime_s: float = 300, **claims: object) -> str:
        said = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time() + lifetime_s)} | claims
        return jwt.encode(said, self.keys[algorithm], algorithm, headers={"kid": algorithm})


class SecuredBroker:
    """One broker on several listeners."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.folder = folder
        self.authority = Authority(folder / "tls")
        self.signer = TokenSigner(folder / "tokens")
        self.certificate, self.key = self.authority.sign("broker")
        self.ports = {name: free_port() for name in ("sasl", "ssl", "sasl-plain")}
        listen = [
            f"sasl=SASL_SSL://127.0.0.1:{self.ports['sasl']}",
            f"ssl=SSL://127.0.0.1:{self.ports['ssl']},client-auth=required",
            f"sasl-plain=SASL_PLAINTEXT://127.0.0.1:{self.ports['sasl-plain']},mechanisms=PLAIN,SCRAM-SHA-256",
        ]
        defaults: dict[str, object] = {
            "listen": listen,
            "tls_cert": self.certificate,
            "tls_key": self.key,
            "tls_ca": self.authority.ca_file,
            "tls_principal_rules": "RULE:^CN=([^,]*),O=team$/$1/,DEFAULT",
            "oauth_jwks": self.signer.jwks_file,
            "oauth_issuer": ISSUER,
            "oauth_audience": AUDIENCE,
            "admin_user": ADMIN,
        }
        self.process = BrokerProcess(folder / "data", **(defaults | settings))
        self.process.environment["HEADRACE_ADMIN_PASSWORD"] = ADMIN_PASSWORD

    def start(self) -> SecuredBroker:
        self.process.start()
        return self

    def address(self, listener: str = "sasl") -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def confluent(
        self, mechanism: str = "SCRAM-SHA-256", user: str = ADMIN, password: str = ADMIN_PASSWORD
    ) -> dict[str, str | int | float | bool]:
        """For confluent-kafka on the TLS listener."""
        return {
            "bootstrap.servers": self.address(),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.ca_file),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }

    def cluster(self, sasl: Sasl | None = None) -> Cluster:
        """Our own client, as the administrator unless it is told otherwise."""
        security = ClientSecurity(tls=True, ca_file=str(self.authority.ca_file))
        who = sasl or Sasl("SCRAM-SHA-256", ADMIN, ADMIN_PASSWORD)
        return Cluster(self.address(), 20, "tests", security.ssl_context(), who)

    def create_user(self, name: str, password: str) -> None:
        with self.cluster() as cluster:
            UserAdmin(cluster).set_password(name, password, ["SCRAM-SHA-256", "SCRAM-SHA-512"])

    def client_config(
        self, user: str = ADMIN, password: str = ADMIN_PASSWORD, mechanism: str = "SCRAM-SHA-512"
    ) -> Path:
        """A file for Kafka's tools, and ours."""
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        path = self.folder / f"{user}-{mechanism}.properties".replace("/", "-")
        path.touch(mode=0o600)
        path.write_text(
            "security.protocol=SASL_SSL\n"
            f"sasl.mechanism={mechanism}\n"
            f"sasl.jaas.config=org.apache.kafka.common.security.{module} required \\\n"
            f'    username="{user}" password="{password}";\n'
            f"ssl.truststore.type=PEM\nssl.truststore.location={self.authority.ca_file}\n"
        )
        return path
