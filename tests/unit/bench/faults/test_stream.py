"""What the broker in memory knows of its places."""

from spotline.bench.faults.stream import MemoryBroker, MemoryStream
from spotline.bench.faults.virtual_time import run_virtually


def test_a_place_whose_acknowledgement_was_lost_waits_for_nothing():
    async def run():
        broker = MemoryBroker(now_ns=lambda: 0)
        broker.store("spotline.v1.market.slot", {}, b"")
        subscription = await MemoryStream(broker).subscribe("selector", ())
        (entry,) = await subscription.fetch(limit=1, timeout_s=1.0)
        waited_before = broker.waits_for("selector", ())
        await subscription.ack(entry)
        # The broker forgets it; its owner does not, and is given nothing again.
        broker.places["selector"].acked_seq = 0
        return waited_before, broker.waits_for("selector", ())

    assert run_virtually(run) == (True, False)
