"""How long an instance may go on without the control plane, and with one session."""

from __future__ import annotations

from spotline.agent.ports import AgentClock


class InstanceLease:
    """Lasts `lease_s` wall seconds from the last contact.

    What an instance costs must end when nobody is there to end it.
    """

    def __init__(self, clock: AgentClock, lease_s: float) -> None:
        self._clock = clock
        self._lease_s = lease_s
        self._renewed_s = clock.elapsed_s()

    def renew(self) -> None:
        """Note that the control plane answered."""
        self._renewed_s = self._clock.elapsed_s()

    @property
    def left_s(self) -> float:
        """Seconds until it ends; not positive when it has."""
        return self._renewed_s + self._lease_s - self._clock.elapsed_s()

    async def ended(self) -> None:
        """Wait until it ends."""
        while (left_s := self.left_s) > 0:
            await self._clock.sleep(left_s)


class SessionRenewal:
    """Is due when half of a session is over; one of 0 seconds does not end."""

    def __init__(self, clock: AgentClock, session_s: float) -> None:
        self._clock = clock
        self.renew(session_s)

    def renew(self, session_s: float) -> None:
        """Note that a session was opened, good for `session_s` wall seconds."""
        self._session_s = session_s
        self._opened_s = self._clock.elapsed_s()

    @property
    def is_due(self) -> bool:
        """Whether the next session is to be asked for."""
        passed_s = self._clock.elapsed_s() - self._opened_s
        return self._session_s > 0 and passed_s >= self._session_s / 2
