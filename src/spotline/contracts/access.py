"""Who may do what at which door: the one table.

The servers' checks, docs/access.md and the tests of every cell are made from it. What may be
published and followed on the bus is in `contracts.publishers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType


class Role(Enum):
    """What a caller is; the value is how tokens and files name it."""

    OWNER = "owner"
    OPERATOR = "operator"
    VIEWER = "viewer"
    SERVICE = "service"
    INSTANCE = "instance"


ROLE_MEANINGS: Mapping[Role, str] = MappingProxyType(
    {
        Role.OWNER: "a tenant's: hands in its jobs, changes and ends them, reads what is its own",
        Role.OPERATOR: "of the whole system: reads everything, stops buying, mends, ends any job",
        Role.VIEWER: "reads: a tenant's own, or everything where it is bound to no tenant",
        Role.SERVICE: "a service or a training platform: acts for any tenant",
        Role.INSTANCE: "one instance of one job: reports for its own allocation, for minutes",
    }
)


class DoorKind(Enum):
    """Where a caller comes in."""

    GRPC = "gRPC"
    HTTP = "HTTP"


class Does(Enum):
    """Whether an action changes anything."""

    READ = "reads"
    WRITE = "writes"


class Reach(Enum):
    """Whose things an action touches."""

    SYSTEM = "nobody's in particular: market, knowledge"
    WHOLE = "of all tenants together: for callers that are bound to none"
    TENANT = "one tenant's, or of every tenant that the caller may see"
    ALLOCATION = "the caller's own allocation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A row: what can be asked at a door, and which roles may.

    `name` is a method's full gRPC name (`/package.Service/Method`) or an HTTP method and route.
    """

    door: DoorKind
    name: str
    does: Does
    reach: Reach
    roles: frozenset[Role]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody who has proved who he is.

    Parameters
    ----------
    subject
        Who, for people and for the audit: the name of an API key, the `sub` of a token, an
        instance's id.
    tenant
        Whose he is; empty: bound to none, as operators and services are.
    credential_id
        Which credential proved it; never the credential.
    job_id, generation
        Of an instance: its allocation.
    """

    subject: str
    role: Role
    tenant: str = ""
    credential_id: str = ""
    job_id: str = ""
    generation: int = 0

    def sees(self, tenant: str) -> bool:
        """Whether a tenant's things are his to ask for."""
        return not self.tenant or self.tenant == tenant


_READERS = frozenset({Role.OWNER, Role.OPERATOR, Role.VIEWER, Role.SERVICE})
_OWNERS = frozenset({Role.OWNER, Role.SERVICE})
_ENDERS = frozenset({Role.OWNER, Role.SERVICE, Role.OPERATOR})
_OPERATORS = frozenset({Role.OPERATOR})
_WATCHERS = frozenset({Role.OPERATOR, Role.VIEWER, Role.SERVICE})
_SERVICES = frozenset({Role.SERVICE})
_INSTANCES = frozenset({Role.INSTANCE})
# As they come: with the token of an instance that is to be started, traded for a session.
_NOBODY_YET = frozenset[Role]()

_PACKAGE = "/spotline.api.v1."
_METHODS: Mapping[str, tuple[Does, Reach, frozenset[Role]]] = MappingProxyType(
    {
        "AgentService/Join": (Does.WRITE, Reach.ALLOCATION, _NOBODY_YET),
        "AgentService/WatchAllocation": (Does.READ, Reach.ALLOCATION, _INSTANCES),
        "AgentService/ReportHeartbeat": (Does.WRITE, Reach.ALLOCATION, _INSTANCES),
        "AgentService/ReportRanks": (Does.WRITE, Reach.ALLOCATION, _INSTANCES),
        "AgentService/ReportWork": (Does.WRITE, Reach.ALLOCATION, _INSTANCES),
        "AgentService/ReportCheckpoint": (Does.WRITE, Reach.ALLOCATION, _INSTANCES),
        "AgentService/AcknowledgeNotice": (Does.WRITE, Reach.ALLOCATION, _INSTANCES),
        "AgentService/SendOutput": (Does.WRITE, Reach.ALLOCATION, _INSTANCES),
        "AllocatorService/Allocate": (Does.READ, Reach.WHOLE, _SERVICES),
        "AllocatorService/Plan": (Does.READ, Reach.TENANT, _READERS),
        "AllocatorService/ComparePolicies": (Does.READ, Reach.TENANT, _READERS),
        "AnalyticsService/Query": (Does.READ, Reach.TENANT, _READERS),
        "AnalyticsService/ListKeys": (Does.READ, Reach.TENANT, _READERS),
        "ConfigurationService/Complete": (Does.READ, Reach.TENANT, _READERS),
        "ConfigurationService/Predict": (Does.READ, Reach.SYSTEM, _READERS),
        "ConfigurationService/Learn": (Does.WRITE, Reach.WHOLE, _SERVICES | _OPERATORS),
        "ConfigurationService/Sources": (Does.READ, Reach.SYSTEM, _READERS),
        "IdentityService/WhoAmI": (Does.READ, Reach.SYSTEM, frozenset(Role)),
        "JobService/Submit": (Does.WRITE, Reach.TENANT, _OWNERS),
        "JobService/Get": (Does.READ, Reach.TENANT, _READERS),
        "JobService/List": (Does.READ, Reach.TENANT, _READERS),
        "JobService/Cancel": (Does.WRITE, Reach.TENANT, _ENDERS),
        "JobService/ReportProgress": (Does.WRITE, Reach.TENANT, _OWNERS),
        "JobService/Watch": (Does.READ, Reach.TENANT, _READERS),
        "JobService/UpdateJob": (Does.WRITE, Reach.TENANT, _OWNERS),
        "JobService/ReportExit": (Does.WRITE, Reach.TENANT, _OWNERS),
        "JobService/GetMarket": (Does.READ, Reach.SYSTEM, _READERS),
        "JobService/ReadOutput": (Does.READ, Reach.TENANT, _READERS),
        "JobService/ReadEvents": (Does.READ, Reach.TENANT, _READERS),
        "JobService/ExplainDecision": (Does.READ, Reach.TENANT, _READERS),
        "OperationsService/GetSystemStatus": (Does.READ, Reach.WHOLE, _WATCHERS),
        "OperationsService/ListParked": (Does.READ, Reach.WHOLE, _WATCHERS),
        "OperationsService/RetryParked": (Does.WRITE, Reach.WHOLE, _OPERATORS),
        "OperationsService/DropParked": (Does.WRITE, Reach.WHOLE, _OPERATORS),
        "OperationsService/Pause": (Does.WRITE, Reach.WHOLE, _OPERATORS),
        "OperationsService/Resume": (Does.WRITE, Reach.WHOLE, _OPERATORS),
        "OperationsService/ListOrphans": (Does.READ, Reach.WHOLE, _WATCHERS),
        "OperationsService/ReapOrphans": (Does.WRITE, Reach.WHOLE, _OPERATORS),
        "OperationsService/GetLimits": (Does.READ, Reach.WHOLE, _WATCHERS),
        "OperationsService/ListAccountModes": (Does.READ, Reach.WHOLE, _WATCHERS),
        "OperationsService/SetAccountMode": (Does.WRITE, Reach.WHOLE, _OPERATORS),
        "OperationsService/SetLimit": (Does.WRITE, Reach.WHOLE, _OPERATORS),
        "OperationsService/ReadLog": (Does.READ, Reach.WHOLE, _WATCHERS),
        "PlacementService/Place": (Does.WRITE, Reach.TENANT, _OWNERS),
        "PlacementService/Release": (Does.WRITE, Reach.TENANT, _ENDERS),
        "PlacementService/ListPlacements": (Does.READ, Reach.TENANT, _READERS),
        "PlacementService/Explain": (Does.READ, Reach.TENANT, _READERS),
    }
)

GRPC_ACTIONS: Mapping[str, Action] = MappingProxyType(
    {
        _PACKAGE + name: Action(
            door=DoorKind.GRPC, name=_PACKAGE + name, does=does, reach=reach, roles=roles
        )
        for name, (does, reach, roles) in _METHODS.items()
    }
)
"""Every method of every service of ours; a test holds it to the protos."""

COUNTED: Mapping[str, str] = MappingProxyType(
    {
        _PACKAGE + "AgentService/ReportHeartbeat": "every few seconds; nothing is kept of it",
        _PACKAGE + "AgentService/ReportWork": "every few seconds; the event log has each",
        _PACKAGE + "AgentService/SendOutput": "while a program writes; the output is kept",
        _PACKAGE + "JobService/ReportProgress": "as often as one likes; the event log has each",
    }
)
"""Writes that the audit has by their number and time, not one by one: reports, and why."""

_ROUTES: Mapping[str, tuple[Does, Reach, frozenset[Role]]] = MappingProxyType(
    {
        "/v1/jobs": (Does.READ, Reach.TENANT, _READERS),
        "/v1/jobs/{job_id}": (Does.READ, Reach.TENANT, _READERS),
        "/v1/jobs/{job_id}/events": (Does.READ, Reach.TENANT, _READERS),
        "/v1/market": (Does.READ, Reach.SYSTEM, _READERS),
        "/v1/fleet": (Does.READ, Reach.TENANT, _READERS),
        "/v1/watch": (Does.READ, Reach.TENANT, _READERS),
        "/v1/system": (Does.READ, Reach.WHOLE, _WATCHERS),
    }
)

# Pages for people. What is of all tenants together is no page of one tenant's.
_PAGES: Mapping[str, tuple[Does, Reach, frozenset[Role]]] = MappingProxyType(
    {
        "/": (Does.READ, Reach.TENANT, _READERS),
        "/jobs": (Does.READ, Reach.TENANT, _READERS),
        "/jobs/expected": (Does.READ, Reach.TENANT, _READERS),
        "/jobs/{job_id}": (Does.READ, Reach.TENANT, _READERS),
        "/jobs/{job_id}/outlook": (Does.READ, Reach.TENANT, _READERS),
        "/jobs/{job_id}/otherwise": (Does.READ, Reach.TENANT, _READERS),
        "/jobs/{job_id}/decisions/{slot}": (Does.READ, Reach.TENANT, _READERS),
        "/jobs/{job_id}/decisions/{slot}/why": (Does.READ, Reach.TENANT, _READERS),
        "/market": (Does.READ, Reach.SYSTEM, _READERS),
        "/market/{offering_id:path}": (Does.READ, Reach.SYSTEM, _READERS),
        "/money": (Does.READ, Reach.TENANT, _READERS),
        "/money/charges": (Does.READ, Reach.TENANT, _READERS),
        "/money/charges.csv": (Does.READ, Reach.TENANT, _READERS),
        "/money/rules": (Does.READ, Reach.TENANT, _READERS),
        "/policies": (Does.READ, Reach.WHOLE, _WATCHERS),
        "/policies/bound": (Does.READ, Reach.WHOLE, _WATCHERS),
        "/system": (Does.READ, Reach.WHOLE, _WATCHERS),
        "/replay": (Does.READ, Reach.WHOLE, _WATCHERS),
        "/account": (Does.READ, Reach.SYSTEM, _READERS),
        "/act": (Does.READ, Reach.SYSTEM, _READERS),
        "/act/submit": (Does.READ, Reach.SYSTEM, _READERS),
        "/act/update": (Does.READ, Reach.SYSTEM, _READERS),
        "/act/cancel": (Does.READ, Reach.SYSTEM, _READERS),
        "/act/pause": (Does.READ, Reach.SYSTEM, _READERS),
        "/act/resume": (Does.READ, Reach.SYSTEM, _READERS),
        "/act/promote": (Does.READ, Reach.SYSTEM, _READERS),
        "/act/limit": (Does.READ, Reach.SYSTEM, _READERS),
        "/act/retry": (Does.READ, Reach.SYSTEM, _READERS),
        "/act/drop": (Does.READ, Reach.SYSTEM, _READERS),
        "/act/reap": (Does.READ, Reach.SYSTEM, _READERS),
        "/page/changes": (Does.READ, Reach.TENANT, _READERS),
    }
)
PAGE_ACTIONS: Mapping[str, Action] = MappingProxyType(
    {
        f"GET {route}": Action(
            door=DoorKind.HTTP, name=f"GET {route}", does=does, reach=reach, roles=roles
        )
        for route, (does, reach, roles) in _PAGES.items()
    }
)
"""Every page; with a session, or a token as everywhere. HEAD is as GET."""

# The forms of pages. What changes anything the allocator does for the caller, by his own token, and
# asks and records by itself: each row is its method's.
_FORMS: Mapping[str, tuple[Does, Reach, frozenset[Role]]] = MappingProxyType(
    {
        "/sign-in": (Does.READ, Reach.SYSTEM, _READERS),
        "/sign-out": (Does.READ, Reach.SYSTEM, _READERS),
        "/act/submit": (Does.WRITE, Reach.TENANT, _OWNERS),
        "/act/update": (Does.WRITE, Reach.TENANT, _OWNERS),
        "/act/cancel": (Does.WRITE, Reach.TENANT, _ENDERS),
        "/act/pause": (Does.WRITE, Reach.WHOLE, _OPERATORS),
        "/act/resume": (Does.WRITE, Reach.WHOLE, _OPERATORS),
        "/act/promote": (Does.WRITE, Reach.WHOLE, _OPERATORS),
        "/act/limit": (Does.WRITE, Reach.WHOLE, _OPERATORS),
        "/act/retry": (Does.WRITE, Reach.WHOLE, _OPERATORS),
        "/act/drop": (Does.WRITE, Reach.WHOLE, _OPERATORS),
        "/act/reap": (Does.WRITE, Reach.WHOLE, _OPERATORS),
    }
)
FORM_ACTIONS: Mapping[str, Action] = MappingProxyType(
    {
        f"POST {route}": Action(
            door=DoorKind.HTTP, name=f"POST {route}", does=does, reach=reach, roles=roles
        )
        for route, (does, reach, roles) in _FORMS.items()
    }
)
"""Every form that a page posts; only from a page of the same server and session."""

VIEW_ACTIONS: Mapping[str, Action] = MappingProxyType(
    {
        f"GET {route}": Action(
            door=DoorKind.HTTP, name=f"GET {route}", does=does, reach=reach, roles=roles
        )
        for route, (does, reach, roles) in _ROUTES.items()
    }
)
"""Every route of the read model's JSON; HEAD is as GET."""

HTTP_ACTIONS: Mapping[str, Action] = MappingProxyType(
    {**VIEW_ACTIONS, **PAGE_ACTIONS, **FORM_ACTIONS}
)
"""Every route over HTTP that asks who calls."""

OPEN: Mapping[str, str] = MappingProxyType(
    {
        "/grpc.health.v1.Health/*": "every gRPC port: whether it serves, for those that watch it",
        "GET /sign-in": "the read model's: the form to sign in; who posts it shows a token",
        "GET /static/*": "the read model's: what pages look like; nothing of what they show",
        "GET /healthz": "health port, and the read model's: whether a service is well",
        "GET /livez": "health port: whether a process is worth keeping",
        "GET /readyz": "health port: whether a service should be sent work",
        "GET /metrics": "health port: counts by service and kind, never of a tenant or job",
    }
)
"""What anybody may ask who reaches the port, and what it tells. The health port is on loopback
unless a setting says otherwise."""

ANY_CALLER: Mapping[str, str] = MappingProxyType(
    {
        "/grpc.reflection.v1alpha.ServerReflection/*": "what a gRPC port serves, not who uses it",
    }
)
"""What every caller may ask that has proved who he is."""
