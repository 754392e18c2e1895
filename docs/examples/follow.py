"""Follow a tenant's decisions with a plain NATS client: `python follow.py nats://HOST:PORT TENANT`."""

import asyncio
import sys

import nats

from spotline.api.v1.allocation_pb2 import AllocationDecided, DecisionReason


async def follow(url, tenant):
    bus = await nats.connect(url)
    subscription = await bus.subscribe(f"spotline.v1.decision.{tenant}.>")
    await bus.flush()
    print("following", tenant, flush=True)
    async for message in subscription.messages:
        decided = AllocationDecided.FromString(message.data)
        held = ", ".join(
            f"{lot.spot} spot and {lot.on_demand} on-demand of {lot.offering_id}"
            for lot in decided.lots
        )
        why = DecisionReason.Name(decided.reason)
        print(message.headers["ce-time"], decided.job_id, held or "nothing", why, flush=True)


asyncio.run(follow(*sys.argv[1:]))
