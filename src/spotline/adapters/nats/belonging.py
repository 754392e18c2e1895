"""Mark a stream as an installation's."""

from __future__ import annotations

import json
from typing import Any

from spotline.adapters.nats.connection import BrokerLink
from spotline.adapters.nats.continuity import INSTALLATION
from spotline.contracts.errors import ProviderUnavailable

_ANSWER_S = 5.0


async def claim(link: BrokerLink, stream: str, installation_id: str) -> None:
    """Mark a stream as an installation's."""
    config = (await _asked(link, f"STREAM.INFO.{stream}", None))["config"]
    metadata = {**(config.get("metadata") or {}), INSTALLATION: installation_id}
    await _asked(link, f"STREAM.UPDATE.{stream}", {**config, "metadata": metadata})


async def _asked(link: BrokerLink, what: str, body: dict[str, Any] | None) -> dict[str, Any]:
    payload = b"" if body is None else json.dumps(body).encode()
    answer = await link.client.request(f"$JS.API.{what}", payload, timeout=_ANSWER_S)
    told: dict[str, Any] = json.loads(answer.data)
    if "error" in told:
        raise ProviderUnavailable(f"JetStream refused {what}: {told['error'].get('description')}")
    return told
