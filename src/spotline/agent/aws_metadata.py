"""What AWS says on the instance (IMDSv2), spot interruptions among it."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime

from spotline.agent.notices import INTERRUPTION, LocalNotice
from spotline.contracts.errors import ContractError, ProviderUnavailable

DEFAULT_ENDPOINT = "http://169.254.169.254"
POLL_S = 5.0

_TOKEN_TTL_S = 21_600
_TIMEOUT_S = 2.0
_ABSENT = 404
_TOKEN_OVER = 401


class Metadata:
    """The metadata service of an instance, asked by IMDSv2.

    Parameters
    ----------
    endpoint
        `AWS_EC2_METADATA_SERVICE_ENDPOINT`, by default the link-local one.
    timeout_s
        Wall seconds that it gets for an answer.
    """

    def __init__(self, endpoint: str = DEFAULT_ENDPOINT, *, timeout_s: float = _TIMEOUT_S) -> None:
        if not endpoint.startswith(("http://", "https://")):
            raise ValueError(
                f"AWS_EC2_METADATA_SERVICE_ENDPOINT must be an http URL, was {endpoint!r}"
            )
        self._endpoint = endpoint.rstrip("/")
        self._timeout_s = timeout_s
        self._token = ""
        # What lies on the machine itself is no business of a proxy.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str) -> str | None:
        """The text at a path, None where there is none; blocks for seconds at most.

        Raises
        ------
        ProviderUnavailable
            The service does not answer.
        """
        if not self._token:
            self._renew_token()
        text = self._asked(path)
        if text is None and not self._token:
            self._renew_token()
            text = self._asked(path)
        return text

    def _renew_token(self) -> None:
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)}
        self._token = self._ask("/latest/api/token", ttl, method="PUT") or ""

    def _asked(self, path: str) -> str | None:
        return self._ask(path, {"X-aws-ec2-metadata-token": self._token})

    def _ask(self, path: str, headers: Mapping[str, str], *, method: str = "GET") -> str | None:
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            self._endpoint + path, headers=dict(headers), method=method
        )
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                text: str = response.read().decode("utf-8", "replace")
                return text
        except urllib.error.HTTPError as error:
            with error:
                if error.code == _TOKEN_OVER:
                    self._token = ""
                    return None
                if error.code == _ABSENT:
                    return None
                raise ProviderUnavailable(f"{self._endpoint}{path}: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            # It is not there, or ended within its answer.
            raise ProviderUnavailable(f"{self._endpoint}{path}: {error!r}") from error


class AwsMetadata:
    """Asks the metadata service whether this instance is taken back; parameters as `Metadata`."""

    def __init__(
        self,
        instance_id: str,
        endpoint: str = DEFAULT_ENDPOINT,
        *,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._instance_id = instance_id
        self._metadata = Metadata(endpoint, timeout_s=timeout_s)

    def read(self) -> tuple[LocalNotice, ...]:
        """The notice that stands, if any; blocks for seconds at most.

        Raises
        ------
        ProviderUnavailable
            The service does not answer.
        ContractError
            It answers something else than it is documented to.
        """
        action = self._metadata.get("/latest/meta-data/spot/instance-action")
        return () if action is None else (self._notice(action),)

    def _notice(self, action: str) -> LocalNotice:
        """`{"action": "terminate", "time": "2026-09-18T08:22:00Z"}`."""
        try:
            fields = json.loads(action)
            at = datetime.fromisoformat(fields["time"].replace("Z", "+00:00"))
            kind = str(fields["action"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            problem = f"expected an action and its time, found {action[:200]!r}"
            raise ContractError("spot/instance-action", problem) from error
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        return LocalNotice(
            notice_id=f"aws-{kind}-{fields['time']}",
            instance_ids=(self._instance_id,),
            deadline_s=at.timestamp(),
            kind=INTERRUPTION,
        )
