"""Keeps this worker's leases: signs of life, taking what is free, noticing what is lost."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping

import structlog

from spotline.adapters.faust import leases
from spotline.adapters.faust.bucket import Bucket, Conflict
from spotline.adapters.faust.inbox import subscribe_raw
from spotline.adapters.faust.leases import NOBODY, Group, LeaseWatch
from spotline.adapters.faust.session import Session
from spotline.adapters.nats.connection import BrokerLink
from spotline.contracts.errors import InvariantViolation, ProviderUnavailable

_log = structlog.get_logger(__name__)

_KEY = "group"
_BEATS_PER_LEASE = 4


class LeaseKeeper:
    """The part one worker has in the group.

    Parameters
    ----------
    name
        Of the worker. One that starts under the name of one that died takes its partitions over
        at once; otherwise they are free after `lease_s`.
    static
        Own these partitions and no others, as soon as no living worker does; None shares all out.
    on_change
        Called when `owned` or `surplus` has changed.
    """

    def __init__(
        self,
        session: Session,
        bucket: Bucket,
        *,
        name: str,
        url: str,
        lease_s: float,
        static: frozenset[int] | None,
        on_change: Callable[[], None],
    ) -> None:
        self.name = name
        self.group: Group = NOBODY
        self._session = session
        self._bucket = bucket
        self._url = url
        self._lease_s = lease_s
        self._static = static
        self._on_change = on_change
        self._nonce = secrets.token_hex(8)
        self._watch = LeaseWatch(lease_s)
        self._partitions = 0
        self._left = False
        self._joined = False
        self._valid_until_s = 0.0
        self._news = asyncio.Event()
        self._writing = asyncio.Lock()
        self._listening_on: BrokerLink | None = None
        self._told: object = None

    @property
    def owned(self) -> Mapping[int, int]:
        """The epochs of the partitions that are this worker's now, by partition."""
        if asyncio.get_running_loop().time() >= self._valid_until_s:
            return {}
        return self.group.owned_by(self.name)

    @property
    def surplus(self) -> frozenset[int]:
        """What others are waiting for."""
        return frozenset() if self._static is not None else leases.surplus(self.group, self.name)

    def want(self, partitions: int) -> None:
        """There are this many partitions to work on."""
        self._partitions = max(self._partitions, partitions)
        self._news.set()

    def look(self) -> None:
        """Something is not as it should be: look at the group now."""
        self._news.set()

    async def keep(self) -> None:
        """Take part in the group until cancelled.

        Raises
        ------
        InvariantViolation
            Another process has started under this worker's name.
        """
        loop = asyncio.get_running_loop()
        while not self._left:
            self._news.clear()
            if self._partitions:
                try:
                    async with asyncio.timeout(self._lease_s):
                        await self._listen()
                        await self._step()
                except (ProviderUnavailable, TimeoutError) as error:
                    _log.warning("faust_lease_not_renewed", worker=self.name, reason=repr(error))
            self._tell()
            wait_s = self._lease_s / _BEATS_PER_LEASE
            if (left_s := self._valid_until_s - loop.time()) > 0:
                wait_s = min(wait_s, left_s)
            try:
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def release(self, partitions: Iterable[int]) -> None:
        """Let others have `partitions`, whose work here is finished."""
        freed = frozenset(partitions)
        await self._write(lambda group: leases.released(group, self.name, freed))

    async def leave(self) -> None:
        """Let others have everything, and be no worker any more."""
        self._left = True
        self._valid_until_s = 0.0
        if self._joined:
            await self._write(self._without_this)

    def _tell(self) -> None:
        """Call back if anything is other than when that was done last."""
        now = (dict(self.owned), self.surplus)
        if self._joined and not self._left and now != self._told:
            self._told = now
            self._on_change()

    async def _step(self) -> None:
        asked_s = asyncio.get_running_loop().time()
        await self._write(self._next)
        # Others count from when they see the beat, which was sent after this.
        self._valid_until_s = asked_s + self._lease_s

    def _next(self, group: Group) -> Group:
        """What this worker makes of `group`: its beat, the dead gone, what falls to it taken."""
        self._refuse_namesake(group)
        if self._left:
            return self._without_this(group)
        dead = self._watch.look(group, asyncio.get_running_loop().time()) - {self.name}
        if dead:
            _log.warning("faust_worker_lost", workers=sorted(dead), noticed_by=self.name)
        group = leases.without(group, dead)
        group = leases.with_partitions(group, self._partitions)
        group = leases.with_beat(group, self.name, nonce=self._nonce, url=self._url)
        if self._static is None:
            return leases.taken(group, self.name, leases.takeable(group, self.name))
        free = {p for p, lease in group.leases.items() if lease.owner not in group.workers}
        return leases.taken(group, self.name, sorted(self._static & free))

    def _without_this(self, group: Group) -> Group:
        """`group` without this worker; another that has started under its name stays."""
        known = group.workers.get(self.name)
        is_mine = known is not None and known.nonce == self._nonce
        return leases.without(group, [self.name]) if is_mine else group

    def _refuse_namesake(self, group: Group) -> None:
        known = group.workers.get(self.name)
        if self._joined and not self._left and known is not None and known.nonce != self._nonce:
            self._valid_until_s = 0.0
            self._tell()
            raise InvariantViolation(
                f"another process has started as worker {self.name!r} of {self._bucket.name}; "
                "give each a name of its own (consumer_group_instance_id)"
            )
        self._joined = True

    async def _write(self, change: Callable[[Group], Group]) -> None:
        async with self._writing:
            while True:
                entry = await self._bucket.get(_KEY)
                group = leases.parse_group(entry.content) if entry.content else NOBODY
                changed = change(group)
                try:
                    if changed != group:
                        await self._bucket.put(
                            _KEY, leases.dump_group(changed), revision=entry.revision
                        )
                except Conflict:
                    continue
                self.group = changed
                return

    async def _listen(self) -> None:
        """Hear of changes at once; a beat would notice them too, but later."""
        link = await self._session.link(timeout_s=self._lease_s / 2)
        if link is self._listening_on:
            return

        def changed(subject: bytes, reply: bytes, payload: bytes, block: bytes | None) -> None:
            try:
                group = leases.parse_group(payload)
            except ValueError:
                group = NOBODY
            # A beat alone is no news.
            if (
                group.leases != self.group.leases
                or group.workers.keys() != self.group.workers.keys()
            ):
                self._news.set()

        await subscribe_raw(link.client, self._bucket.subject(_KEY), changed)
        self._listening_on = link
