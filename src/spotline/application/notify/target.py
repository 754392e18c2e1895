"""Who is told what, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from spotline.application.notify.alerts import Alert, AlertKind


class NotifyFormat(Enum):
    """How a message is written: our own JSON, or blocks as Slack takes them."""

    JSON = "json"
    SLACK = "slack"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyTarget:
    """A receiver of alerts.

    Parameters
    ----------
    name
        What it is called here; its place in the store goes by it.
    url
        Where messages are posted; it may itself be a secret.
    secret
        What messages are signed with; empty: they are not signed.
    rules
        The kinds that it is told.
    tenants
        Whose jobs and limits it is told of; empty: everybody's, and the system's. Of feeds all are
        told.
    """

    name: str
    url: str = field(repr=False)
    secret: str = field(default="", repr=False)
    format: NotifyFormat = NotifyFormat.JSON
    rules: tuple[AlertKind, ...] = tuple(AlertKind)
    tenants: tuple[str, ...] = ()

    def wants(self, alert: Alert) -> bool:
        """Whether it is told of an alert."""
        whose = not self.tenants or alert.tenant in self.tenants
        return alert.kind in self.rules and (whose or alert.kind is AlertKind.FEED_DEAD)
