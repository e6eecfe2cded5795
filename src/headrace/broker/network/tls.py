"""The broker's certificate: loaded at start-up, and reloaded whenever its files change, without a restart.

A reload creates new contexts and never touches the old ones: a mismatched pair loaded into a context in use would fail
every later handshake. If the new files are invalid, the old certificate stays in use and the log says so.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from datetime import UTC, datetime

from cryptography import x509

from headrace.security.listeners import ClientAuth

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_VERIFY: dict[ClientAuth, ssl.VerifyMode] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

Contexts = dict[ClientAuth, ssl.SSLContext]
Marks = tuple[tuple[int, int, int], ...]


class BadCertificate(Exception):
    """One sentence about the problem with the files."""


class Certificates:
    """The certificate in force."""

    def __init__(self, certificate: str, key: str, authority: str) -> None:
        """Raises BadCertificate."""
        self._certificate, self._key, self._authority = certificate, key or certificate, authority
        self._marks = self._look()
        self._contexts = self._read()
        self._watching: asyncio.Task[None] | None = None

    def context(self, client_auth: ClientAuth) -> ssl.SSLContext:
        """The context for new handshakes."""
        return self._contexts[client_auth]

    def watch(self) -> None:
        """Begins to follow the files."""
        self._watching = asyncio.create_task(self._watch(), name="certificates")

    def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if await asyncio.to_thread(self._look) != self._marks:
                await self.renew()

    async def renew(self) -> None:
        """Reads the files again."""
        # Before they are read: a change in between is seen next time.
        self._marks = await asyncio.to_thread(self._look)
        try:
            self._contexts = await asyncio.to_thread(self._read)
        except BadCertificate as error:
            log.error("the certificate could not be reloaded; the old one stays in use", extra={"why": str(error)})
        else:
            log.info("the certificate was reloaded", extra={"file": self._certificate})

    def _look(self) -> Marks:
        """A fingerprint of a file, to notice changes."""
        marks = []
        for path in (self._certificate, self._key, self._authority):
            try:
                found = os.stat(path)
                marks.append((found.st_mtime_ns, found.st_size, found.st_ino))
            except OSError:
                marks.append((0, 0, 0))
        return tuple(marks)

    def _read(self) -> Contexts:
        _check_certificate(self._certificate)
        modes: list[ClientAuth] = ["none", "requested", "required"] if self._authority else ["none"]
        return {mode: self._context(mode) for mode in modes}

    def _context(self, client_auth: ClientAuth) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except ssl.SSLError as error:
            fits = "KEY_VALUES_MISMATCH" not in str(error)
            what = "is not a private key in PEM form" if fits else "does not belong to the certificate"
            raise BadCertificate(f"the key {self._key} {what}") from None
        except OSError as error:
            raise BadCertificate(f"the key {self._key} cannot be read: {error.strerror}") from None
        if self._authority:
            try:
                context.load_verify_locations(self._authority)
            except ssl.SSLError:
                raise BadCertificate(f"{self._authority} has no certificates in PEM form") from None
            except OSError as error:
                raise BadCertificate(f"{self._authority} cannot be read: {error.strerror}") from None
        context.verify_mode = _VERIFY[client_auth]
        return context


def _check_certificate(path: str) -> None:
    """Reads it apart from the key, to tell which of the two is wrong; an expired one is used, and said."""
    try:
        with open(path, "rb") as file:
            [found, *_] = x509.load_pem_x509_certificates(file.read())
    except OSError as error:
        raise BadCertificate(f"the certificate {path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise BadCertificate(f"{path} is not a certificate in PEM form") from None
    if found.not_valid_after_utc < datetime.now(UTC):
        log.warning("the certificate has expired: clients will not accept it", extra={"file": path})


def _no_password() -> str:
    """OpenSSL would ask at the terminal, and wait."""
    raise BadCertificate("the private key is encrypted; give one that is not, in a file that only the broker can read")
