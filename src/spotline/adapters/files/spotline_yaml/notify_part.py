"""Who is told of what needs somebody: the list `notify` of `spotline.yaml` (docs/notifications.md)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from spotline.adapters.files.fields import Name, Part, Stated, expected
from spotline.adapters.files.mistake import SecretText
from spotline.adapters.files.spotline_yaml.secret_values import NOT_SHOWN, Secret
from spotline.adapters.notify.posting import check_url
from spotline.application.notify.alerts import AlertKind
from spotline.application.notify.target import NotifyFormat, NotifyTarget

_SHORTEST_SECRET = 16
_MOST_RECEIVERS = 16
_Rule = Literal["at_risk", "missed", "limit_near", "feed_dead", "done"]


def _checked(value: Any) -> Any:
    """What only shows to be wrong beside other fields."""
    if not isinstance(value, dict):
        return value
    url, secret = value.get("url"), value.get("secret")
    if isinstance(url, str) and url:
        wrong = check_url(str(url), insecure=value.get("insecure") is True)
        if wrong:
            # An address may let in whoever knows it.
            raise expected(wrong, at="url", found=NOT_SHOWN)
    if secret is None and value.get("format", "json") == "json":
        wanted = "this field, which messages are signed with: {env: NAME} or {file: PATH}"
        raise expected(wanted, at="secret", found="nothing")
    if isinstance(secret, SecretText) and 0 < len(secret) < _SHORTEST_SECRET:
        wanted = f"at least {_SHORTEST_SECRET} characters, such as of openssl rand -hex 32"
        raise expected(wanted, at="secret", found=f"{len(secret)}")
    return value


class ReceiverPart(Part):
    """A receiver; without `rules` it is told of everything, without `tenants` of everybody."""

    name: Name
    url: Annotated[Stated, Field(repr=False)]
    secret: Annotated[Secret | None, Field(repr=False)] = None
    format: Literal["json", "slack"] = "json"
    rules: Annotated[tuple[_Rule, ...], Field(min_length=1)] | None = None
    tenants: tuple[Name, ...] = ()
    insecure: Annotated[bool, Field(strict=True)] = False

    def target(self) -> NotifyTarget:
        """What it says."""
        rules = self.rules
        return NotifyTarget(
            name=self.name,
            url=str(self.url),
            secret=str(self.secret or ""),
            format=NotifyFormat(self.format),
            rules=tuple(AlertKind) if rules is None else tuple(map(AlertKind, rules)),
            tenants=self.tenants,
        )


Receiver = Annotated[ReceiverPart, BeforeValidator(_checked)]


def _names_once(receivers: tuple[ReceiverPart, ...]) -> tuple[ReceiverPart, ...]:
    names: set[str] = set()
    for at, receiver in enumerate(receivers):
        if receiver.name in names:
            wanted = "a name that no other receiver has"
            raise expected(wanted, at=f"[{at}].name", found=repr(receiver.name))
        names.add(receiver.name)
    return receivers


Receivers = Annotated[
    tuple[Receiver, ...], Field(max_length=_MOST_RECEIVERS), AfterValidator(_names_once)
]
