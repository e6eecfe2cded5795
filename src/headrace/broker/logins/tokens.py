"""Tokens signed elsewhere (JWTs), and the keys to verify them (JWKS).

A token is valid if one of our keys signed it and its issuer, audience, times and scopes match the settings. Nothing in
the token itself can name a key: `jku`, `x5u` and `jwk` are ignored, and tokens that are unsigned or use a shared secret
are rejected. Keys come from a file or over https. An unknown key id triggers a refetch, at a limited rate; if it fails,
the known keys stay in use.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import ssl
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import jwt

from headrace.broker.logins.options import LoginOptions
from headrace.broker.logins.token_errors import BadToken, NoKeys

log = logging.getLogger(__name__)

KEY_TYPES = ("RSA", "EC", "OKP")
RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
OTHER_ALGORITHMS = ("ES256", "ES384", "ES512", "EdDSA")
"""Algorithms of elliptic curves, each with its curve. None uses a shared secret."""
_KEYS_MAX_BYTES = 1 << 20
_FETCH_TIMEOUT_S = 5.0
_LOOK_AGAIN_S = 30.0
_REFRESH_S = 300.0


class Key(NamedTuple):
    """A public key, and the algorithms that it may be used with."""

    public: Any
    algorithms: tuple[str, ...]


class Claims(NamedTuple):
    """The claims of a valid token."""

    user: str
    organisation: str
    expires_at_s: float


class KeySet:
    """The keys that are known, by id."""

    def __init__(self, place: str, now_s: Callable[[], float]) -> None:
        self._place = place
        self._now_s = now_s
        self._keys: dict[str | None, Key] = {}
        self._looked_at_s = -_LOOK_AGAIN_S
        self._looking: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Reads the keys. A file that cannot be read raises NoKeys; an address may answer later."""
        try:
            self._keys = await asyncio.to_thread(read_keys, self._place)
        except NoKeys as error:
            if not self._place.startswith("https://"):
                raise
            log.warning("keys for tokens are not available yet", extra={"why": str(error)})
        self._looked_at_s = self._now_s()
        self._refreshing = asyncio.create_task(self._refresh(), name="keys of tokens")

    def close(self) -> None:
        for task in (self._refreshing, self._looking):
            if task is not None:
                task.cancel()

    async def find(self, key_id: str | None) -> Key | None:
        """A key by its id; a token without one needs that there is only one key."""
        found = self._known(key_id)
        if found is None and self._now_s() - self._looked_at_s >= _LOOK_AGAIN_S:
            self._looked_at_s = self._now_s()
            self._looking = asyncio.create_task(self._look(), name="look for keys")
        if found is None and self._looking is not None:
            await asyncio.shield(self._looking)
            found = self._known(key_id)
        return found

    def _known(self, key_id: str | None) -> Key | None:
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    async def _look(self) -> None:
        try:
            self._keys = await asyncio.to_thread(read_keys, self._place)
        except NoKeys as error:
            log.warning("keys for tokens could not be refreshed; the known keys stay in use", extra={"why": str(error)})
        finally:
            self._looking = None

    async def _refresh(self) -> None:
        """A key that was withdrawn must not be good for ever."""
        while True:
            await asyncio.sleep(_REFRESH_S)
            await self._look()


def read_keys(place: str) -> dict[str | None, Key]:
    """The keys at an https address or in a file; NoKeys if there are none. Blocks."""
    try:
        content = _fetched(place) if place.startswith("https://") else _read(place)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NoKeys(f"{place} cannot be read: {reason}") from None
    try:
        rows = json.loads(content)["keys"]
    except (ValueError, KeyError, TypeError):
        raise NoKeys(f"{place} is not a JWKS") from None
    keys = {row.get("kid"): key for row in rows if isinstance(row, dict) and (key := _key(row)) is not None}
    if not keys:
        raise NoKeys(f"{place} has no usable public key (RSA, EC or Ed25519)")
    return keys


def _key(row: dict[str, Any]) -> Key | None:
    """A row of a JWKS; None if it is not for us, as keys for encryption are not."""
    if row.get("use", "sig") != "sig" or "d" in row or row.get("kty") not in KEY_TYPES:
        return None
    try:
        found = jwt.PyJWK(row)
    except jwt.PyJWTError:
        return None
    if row["kty"] == "RSA" and "alg" not in row:
        return Key(found.key, RSA_ALGORITHMS)
    is_ours = found.algorithm_name in (*RSA_ALGORITHMS, *OTHER_ALGORITHMS)
    return Key(found.key, (found.algorithm_name,)) if is_ours else None


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return _bounded(file.read(_KEYS_MAX_BYTES + 1))


def _fetched(address: str) -> bytes:
    """One request, without following redirects."""
    parts = urlsplit(address)
    connection = http.client.HTTPSConnection(
        parts.hostname or "", parts.port, timeout=_FETCH_TIMEOUT_S, context=ssl.create_default_context()
    )
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise OSError(f"status {answer.status}")
        return _bounded(answer.read(_KEYS_MAX_BYTES + 1))
    finally:
        connection.close()


def _bounded(content: bytes) -> bytes:
    if len(content) > _KEYS_MAX_BYTES:
        raise OSError("more than 1 MiB")
    return content


def key_id_of(token: str) -> str | None:
    """The token's key id. Nothing else of its header is used."""
    try:
        found = jwt.get_unverified_header(token).get("kid")
    except jwt.PyJWTError:
        raise BadToken("it is not a JWT") from None
    return None if found is None else str(found)


def check_token(token: str, key: Key, options: LoginOptions) -> Claims:
    """The claims of a valid token; BadToken otherwise."""
    try:
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key.public,
            algorithms=list(key.algorithms),
            issuer=options.oauth_issuer or None,
            audience=options.oauth_audience or None,
            leeway=options.oauth_clock_skew_ms / 1000,
            options={"require": ["exp"], "verify_aud": bool(options.oauth_audience)},
        )
    except jwt.ExpiredSignatureError:
        raise BadToken("it has expired") from None
    except jwt.PyJWTError as error:
        raise BadToken(f"it is not valid: {type(error).__name__}") from None
    missing = set(options.oauth_scope.split()) - _scopes(claims)
    if missing:
        raise BadToken(f"it lacks a scope: {', '.join(sorted(missing))}")
    user = claims.get(options.oauth_principal_claim)
    if not isinstance(user, str) or not user:
        raise BadToken(f"it has no claim {options.oauth_principal_claim}")
    organisation = ""
    if options.oauth_organisation_claim:
        found = claims.get(options.oauth_organisation_claim)
        if not isinstance(found, str) or not found:
            raise BadToken(f"it has no claim {options.oauth_organisation_claim}")
        organisation = found
    return Claims(user, organisation, float(claims["exp"]))


def _scopes(claims: Mapping[str, Any]) -> set[str]:
    found = claims.get("scope", claims.get("scp", ""))
    if isinstance(found, str):
        return set(found.split())
    return {part for part in found if isinstance(part, str)} if isinstance(found, list) else set()
