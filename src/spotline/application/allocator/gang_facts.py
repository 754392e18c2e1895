"""What agents have said since this process started, and is in no log: times are wall seconds.

Heartbeats come every few seconds from every instance, and what processes do is told again: neither
belongs into a log that is kept. A restarted allocator learns it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

DEFAULT_SESSION_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTimes:
    """How long is waited for agents, in seconds of wall time.

    Parameters
    ----------
    lease_s
        Without contact for so long, an agent saves and shuts its instance down.
    heartbeat_s
        Between two heartbeats.
    silent_s
        Without contact for so long, an agent is silent; 0: three heartbeats, at least 15 s.
    market_s_per_s
        Market seconds in a second of wall time.
    session_s
        How long a session of an agent is good; it gets the next one when half of it is over.
    """

    lease_s: int = 3600
    heartbeat_s: float = 5.0
    silent_s: float = 0.0
    market_s_per_s: float = 1.0
    session_s: float = DEFAULT_SESSION_S

    def __post_init__(self) -> None:
        for name in ("lease_s", "heartbeat_s", "market_s_per_s", "session_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be > 0, was {getattr(self, name)}")
        if self.silent_s and self.silent_s <= self.heartbeat_s:
            raise ValueError(
                f"silent_s must be > heartbeat_s ({self.heartbeat_s:g}), was {self.silent_s:g}"
            )

    @property
    def market_lease_s(self) -> int:
        """Seconds of market time that an instance goes on without contact."""
        return int(self.lease_s * self.market_s_per_s)

    @property
    def silent_after_s(self) -> float:
        """Seconds without contact after which an agent is silent."""
        return self.silent_s or max(3 * self.heartbeat_s, 15.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksEnd:
    """How the processes of a generation ended on an instance, and when that was heard."""

    generation: int
    exit_code: int
    detail: str
    at_s: float


@dataclass(slots=True, kw_only=True)
class AgentFacts:
    """What is known of one agent.

    `running` is the generation whose processes run there (0: none; None: it has not said yet),
    `started` the latest that was started, `idle_s` when it last said that none runs, and
    `idle_since_s` since when it has been saying so.
    """

    heard_s: float
    running: int | None = None
    started: int = 0
    idle_s: float = float("-inf")
    idle_since_s: float = float("-inf")
    end: RanksEnd | None = None

    def run(self, generation: int, now_s: float) -> None:
        """Note what runs there (0: nothing), as was just said."""
        if generation == 0:
            self.idle_s = now_s
            if self.running != 0:
                self.idle_since_s = now_s
        self.running = generation


@dataclass(slots=True, kw_only=True)
class GangFacts:
    """What is known of the agents of one job.

    Parameters
    ----------
    since_s
        Since when this process listens: everybody counts as heard of then.
    restored
        The generation that had been formed before.
    formed_s
        When the present generation was formed, or `since_s`.
    reported_s
        When its program last said anything of itself.
    stopped, stopped_s
        The latest generation that was told to end, and since when.
    excused, excused_s
        The same, of those that were told so for another reason than that they had failed.
    """

    since_s: float
    restored: int = 0
    formed_s: float = 0.0
    reported_s: float = float("-inf")
    stopped: int = 0
    stopped_s: float = 0.0
    excused: int = 0
    excused_s: float = 0.0
    agents: dict[str, AgentFacts] = field(default_factory=dict)

    def hear(self, instance_id: str, now_s: float) -> AgentFacts:
        """Note that an agent is there."""
        agent = self.agents.setdefault(instance_id, AgentFacts(heard_s=now_s))
        agent.heard_s = max(agent.heard_s, now_s)
        return agent

    def join(self, instance_id: str, now_s: float) -> None:
        """Note that an agent has just joined: nothing runs on its instance yet."""
        agent = self.hear(instance_id, now_s)
        if agent.running is None:
            agent.run(0, now_s)

    def form(self, now_s: float) -> None:
        """Note that a generation has been formed."""
        self.formed_s = now_s

    def report(self, now_s: float) -> None:
        """Note that the program has said something of itself."""
        self.reported_s = now_s

    @property
    def quiet_since_s(self) -> float:
        """Since when nothing was heard of the present generation's program."""
        return max(self.since_s, self.formed_s, self.reported_s)

    def beat(self, instance_id: str, generation: int, now_s: float) -> None:
        """Take a heartbeat, which says what runs."""
        agent = self.hear(instance_id, now_s)
        agent.run(generation, now_s)
        agent.started = max(agent.started, generation)

    def start(self, instance_id: str, generation: int, now_s: float) -> None:
        """Note that processes were started; told late, after their end, it says nothing."""
        agent = self.hear(instance_id, now_s)
        agent.started = max(agent.started, generation)
        if agent.end is None or agent.end.generation < generation:
            agent.run(generation, now_s)

    def stop(
        self, instance_id: str, generation: int, exit_code: int, detail: str, now_s: float
    ) -> None:
        """Note that processes have ended; the first word on a generation counts."""
        agent = self.hear(instance_id, now_s)
        if agent.end is not None and agent.end.generation >= generation:
            return
        agent.end = RanksEnd(generation=generation, exit_code=exit_code, detail=detail, at_s=now_s)
        if agent.running is None or agent.running <= generation:
            agent.run(0, now_s)

    def last_heard_s(self, instance_id: str) -> float:
        """When an agent was last heard of."""
        agent = self.agents.get(instance_id)
        return self.since_s if agent is None else max(agent.heard_s, self.since_s)

    def running(self, instance_id: str) -> int | None:
        """The generation that runs on an instance, None where it has not said."""
        agent = self.agents.get(instance_id)
        return None if agent is None else agent.running

    def end_of(self, instance_id: str, generation: int) -> RanksEnd | None:
        """How a generation ended on an instance, None where that was not heard."""
        agent = self.agents.get(instance_id)
        if agent is None or agent.end is None or agent.end.generation != generation:
            return None
        return agent.end
