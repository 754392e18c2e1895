"""Settings of the cloud: each field is a variable `SPOTLINE_CLOUD_ACME_<FIELD>`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class AcmeSettings:
    """How Acme is reached.

    Parameters
    ----------
    url
        Of its API.
    api_key
        A secret: `repr=False` keeps it out of logs and manifests.
    notice_lead_s
        Seconds of notice that Acme guarantees before it takes spot back.
    look_s
        Wall seconds between two looks for something new.
    """

    url: str = "https://api.acme.example"
    api_key: str = field(default="", repr=False)
    notice_lead_s: int = 30
    look_s: float = 5.0

    def __post_init__(self) -> None:
        if not self.url.startswith("https://"):
            raise ValueError(f"url must begin with https://, was {self.url!r}")
        if self.notice_lead_s < 0:
            raise ValueError(f"notice_lead_s must be >= 0, was {self.notice_lead_s}")
        if not self.look_s > 0:
            raise ValueError(f"look_s must be > 0, was {self.look_s}")
