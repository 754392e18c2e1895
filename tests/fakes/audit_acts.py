"""Acts as doors record them."""

from __future__ import annotations

from spotline.application.identity.audit import Act, AuditDoor

ACT = Act(
    ts_ns=1_772_323_200_000_000_000,
    until_ns=1_772_323_700_000_000_000,
    door=AuditDoor.GRPC,
    action="/spotline.api.v1.JobService/Cancel",
    outcome="UNAUTHENTICATED",
    reason="UNAUTHENTICATED",
    peer="ipv4:10.0.0.7:4242",
    count=4_980,
)
"""The sum of a flood of calls without a token."""
