"""Manifests: what each server offered last, kept in the store of a gateway.

With them a gateway knows the capabilities and the lists of servers that were not started since it
was: a list starts nothing.

Rules: lists that one caller saw are kept under its principal, and are shown to no other. A manifest
is of one configuration of a server, and is not used for another. With the keys of the gateway it is
encrypted for its place: models read these lists, and who may write to the store must not write
them. One that cannot be read, or is too large, is left out: the server is asked instead.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable
from hashlib import sha256
from typing import TypeVar

import msgspec

from colonnade.errors import ColonnadeError, Fault
from colonnade.host.host import Host
from colonnade.host.servers.generation import LISTS_IDLE_S
from colonnade.host.servers.manifest import ServerManifest
from colonnade.ports import SERVER_PRINCIPAL, Seal, Store

log: logging.Logger = logging.getLogger("colonnade.gateway")

# A month: what was not used for longer is asked again.
MANIFEST_TTL_S = 30 * 24 * 3600.0
# A thousand tools of half a KiB.
MAX_MANIFEST_BYTES = 512 * 1024
# Principals whose manifests were loaded, and manifests that were saved: of further ones the oldest
# are forgotten, and loaded or saved once more if they come again.
MAX_PRINCIPALS = 10_000

_decoder = msgspec.json.Decoder(ServerManifest)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def _keep(kept: dict[K, V], key: K, value: V) -> None:
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > MAX_PRINCIPALS:
        del kept[next(iter(kept))]


def _place(principal: str, key: str) -> bytes:
    return f"{key} {principal}".encode()


class GatewayManifests:
    """Loads and saves the manifests of the servers of a host. `seal` encrypts them; None without
    keys that are those of the next start, too."""

    def __init__(
        self, host: Host, store: Callable[[], Store], seal: Callable[[], Seal | None]
    ) -> None:
        self._host = host
        self._store = store
        self._seal = seal
        # By principal: when. The lists of a caller that is gone are dropped, and loaded again then.
        self._loaded: dict[str, float] = {}
        # By principal and server: the digest of what is in the store.
        self._saved: dict[tuple[str, str], bytes] = {}
        self._saving: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        # Those whose lists were read again while they were saved.
        self._again: set[str] = set()

    async def load(self, principal: str) -> None:
        """Use what the servers offered to a principal, once; `SERVER_PRINCIPAL` for what they offer
        to all."""
        now = asyncio.get_running_loop().time()
        if now < self._loaded.get(principal, -LISTS_IDLE_S) + LISTS_IDLE_S:
            return
        _keep(self._loaded, principal, now)
        for server in self._host.servers:
            try:
                raw = await self._read(principal, self._key(server))
                manifest = _decoder.decode(raw) if raw is not None else None
            except Fault:
                log.info("the manifest of server %r was written with other keys", server)
                continue
            except (ColonnadeError, msgspec.MsgspecError) as error:
                log.warning("the manifest of server %r cannot be read: %s", server, error)
                continue
            if manifest is not None and raw is not None:
                _keep(self._saved, (principal, server), sha256(raw).digest())
                caller = None if principal == SERVER_PRINCIPAL else principal
                try:
                    self._host.use_manifest(server, manifest, caller)
                except Fault as fault:
                    log.warning("a list of server %r in its manifest: %s", server, fault)

    async def _read(self, principal: str, key: str) -> bytes | None:
        value, seal = await self._store().get(principal, key), self._seal()
        if value is None or seal is None:
            return value
        return seal.decrypt(value, _place(principal, key))

    def _key(self, server: str) -> str:
        fingerprint = self._host.fingerprint(server)
        return f"manifest {sha256(fingerprint.encode()).hexdigest()}"

    def save_soon(self, principal: str) -> None:
        """Save what the servers offer to a principal, in the background."""
        if principal in self._saving:
            self._again.add(principal)
        else:
            self._saving.add(principal)
            task = asyncio.get_running_loop().create_task(self._save(principal))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _save(self, principal: str) -> None:
        try:
            self._again.add(principal)
            while principal in self._again:
                self._again.discard(principal)
                await self._save_once(principal)
        finally:  # in this step of the loop, so that what is read from now on is saved by another
            self._saving.discard(principal)

    async def _save_once(self, principal: str) -> None:
        for server in self._host.servers:
            manifest = self._host.manifest(server, principal)
            if manifest is None:
                continue
            owner = SERVER_PRINCIPAL if manifest.is_common else principal
            raw = msgspec.json.encode(manifest)
            digest = sha256(raw).digest()
            if self._saved.get((owner, server)) == digest or len(raw) > MAX_MANIFEST_BYTES:
                continue
            key, seal = self._key(server), self._seal()
            value = raw if seal is None else seal.encrypt(raw, _place(owner, key))
            try:
                await self._store().put(owner, key, value, MANIFEST_TTL_S)
            except ColonnadeError as error:
                log.warning("the manifest of server %r is not kept: %s", server, error)
                continue
            _keep(self._saved, (owner, server), digest)

    async def close(self) -> None:
        """Wait until everything is saved."""
        if self._tasks:
            await asyncio.wait(self._tasks)
