"""What is posted: an alert as JSON of ours or as Slack takes it, with its id and its signature."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from spotline import __version__
from spotline.application.notify.alerts import Alert
from spotline.application.notify.target import NotifyFormat, NotifyTarget
from spotline.domain.units import utc_iso

VERSION = 1
EVENT_ID, SIGNATURE = "Spotline-Event-Id", "Spotline-Signature"
TEST = "test"
_SCHEME = "v1"


def alert_fields(alert: Alert) -> dict[str, Any]:
    """The fields of an alert as docs/notifications.md lists them."""
    return {
        "version": VERSION,
        "id": alert.alert_id,
        "kind": alert.kind.value,
        "state": alert.state.value,
        "began_id": alert.began_id,
        "subject": alert.subject,
        "name": alert.name,
        "tenant": alert.tenant,
        "says": alert.says,
        "next": alert.next,
        "path": alert.path,
        "slot": alert.slot,
        "entry": alert.entry,
        "market_time": utc_iso(alert.market_ns) if alert.market_ns else "",
        "logged_time": utc_iso(alert.logged_ns) if alert.logged_ns else "",
    }


def trial_fields(test_id: str, target: str) -> dict[str, Any]:
    """The fields of a message that says nothing but that it came through."""
    return {
        "version": VERSION,
        "id": test_id,
        "kind": TEST,
        "state": "happened",
        "began_id": "",
        "subject": target,
        "name": target,
        "tenant": "",
        "says": f"A test of {target}: nothing has happened.",
        "next": "",
        "path": "",
        "slot": -1,
        "entry": 0,
        "market_time": "",
        "logged_time": "",
    }


def body_of(fields: Mapping[str, Any], form: NotifyFormat) -> bytes:
    """The body of a message."""
    said = fields if form is NotifyFormat.JSON else _slack(fields)
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()


def headers_of(target: NotifyTarget, event_id: str, body: bytes, unix_s: int) -> dict[str, str]:
    """The headers of a message that is sent at `unix_s`, seconds since the epoch.

    The signature is of the time and the body, so that a message kept by a third party is not taken
    for a new one later: the scheme of Stripe's webhooks
    (https://docs.stripe.com/webhooks#verify-manually), which Slack's requests have, too
    (https://api.slack.com/authentication/verifying-requests-from-slack).
    """
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": f"Spotline/{__version__}",
        EVENT_ID: event_id,
    }
    if target.secret:
        headers[SIGNATURE] = f"t={unix_s},{_SCHEME}={signature(target.secret, unix_s, body)}"
    return headers


def signature(secret: str, unix_s: int, body: bytes) -> str:
    """HMAC-SHA256 of `TIME.BODY` by the secret, in hex."""
    return hmac.new(secret.encode(), f"{unix_s}.".encode() + body, hashlib.sha256).hexdigest()


def _slack(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Text for notifications, and blocks for the channel (https://api.slack.com/block-kit)."""
    text = _escaped(str(fields["says"]))
    kind, state = str(fields["kind"]).replace("_", " "), str(fields["state"])
    title = f"{kind}, over" if state == "ended" else kind
    lines = [f"*{_escaped(title)}*", text]
    if fields["next"]:
        lines.append(f"_{_escaped(str(fields['next']))}_")
    facts = [
        f"{name} {_escaped(str(fields[key]))}"
        for name, key in (("tenant", "tenant"), ("market time", "market_time"), ("page", "path"))
        if fields[key]
    ]
    facts.append(f"id {fields['id']}")
    return {
        "text": text[:_MOST_TEXT],
        "blocks": [
            {
                "type": "section",
                "text": {"type": "mrkdwn", "text": "\n".join(lines)[:_MOST_TEXT]},
            },
            {
                "type": "context",
                "elements": [{"type": "mrkdwn", "text": "; ".join(facts)[:_MOST_TEXT]}],
            },
        ],
    }


# A section's text may have 3,000 characters.
_MOST_TEXT = 3_000


def _escaped(text: str) -> str:
    """Text that Slack shows as it is: no name of a job calls a channel or makes a link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
