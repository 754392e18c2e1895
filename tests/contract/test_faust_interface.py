"""What `adapters/faust` relies on in Faust and nats-py beyond their documented interfaces.

Both are pinned to a minor series. A failure here after an upgrade says what has changed and where
it is used; it is not a bug of Faust's or nats-py's.
"""

import asyncio
import inspect

import faust
import mode
import pytest
from faust.assignor.client_assignment import ClientAssignment
from faust.assignor.partition_assignor import PartitionAssignor
from faust.serializers.registry import Registry
from faust.streams import current_event
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.tables.table import Table
from faust.transport import base, conductor, consumer, drivers, producer
from faust.types import TP, ConsumerMessage
from mode.utils.collections import ManagedUserDict
from mode.utils.queues import FlowControlEvent, ThrowableQueue
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.protocol.command import unsub_cmd
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser


def source(what):
    return inspect.getsource(getattr(what, "fun", what))


def parameters(function):
    return list(inspect.signature(function).parameters)


def made_app(**settings):
    app = faust.App("interface", broker="nats://127.0.0.1:1", web_enabled=False, **settings)
    app.finalize()
    return app


def test_transports_are_looked_up_by_url_and_made_of_urls_and_app():
    assert parameters(base.Transport.__init__) == ["self", "url", "app", "loop"]
    for name in ("Consumer", "Producer", "Conductor", "Fetcher"):
        assert hasattr(base.Transport, name)
    assert "faust.transports" in drivers.TRANSPORTS.namespaces


def test_the_apps_hooks_for_rebalances_exist():
    for name in ("on_rebalance_start", "on_rebalance_end", "_on_partitions_assigned"):
        assert callable(getattr(faust.App, name))
    for name in ("consumer_generation_id", "rebalancing", "in_recovery", "client_only"):
        assert hasattr(faust.App, name)


def test_a_consumer_is_drained_committed_and_sought_through_what_is_overridden():
    assert parameters(consumer.Consumer._drain_messages) == ["self", "fetcher"]
    assert "_drain_messages(self)" in source(consumer.Fetcher._fetcher)
    assert "self._new_offset(tp)" in source(consumer.Consumer._filter_committable_offsets)
    assert "self._commit(committable_offsets)" in source(consumer.Consumer._commit_offsets)
    flush = source(consumer.Consumer._commit_offsets)
    assert flush.index("producer.flush()") < flush.index("self._commit(committable_offsets)")
    assert "self.seek_to_committed()" in source(consumer.Consumer.perform_seek)
    assert "self._seek(partition, offset)" in source(consumer.Consumer.seek)


def test_acknowledgements_are_collected_where_they_are_looked_for():
    text = source(consumer.Consumer.ack)
    assert "self._acked_index[tp]" in text
    assert "acked_index.add(offset)" in text
    assert "offset >= committed" in text
    made = made_app().consumer
    assert isinstance(made._acked_index[TP("t", 0)], set)
    assert isinstance(made._acked[TP("t", 0)], list)
    assert made._n_acked == 0


def test_partitions_are_resumed_before_the_flow_whose_resuming_clears_the_queues():
    text = source(Recovery.on_recovery_completed)
    assert (
        text.index("consumer.resume_partitions")
        < text.index("consumer.perform_seek()")
        < text.index("flow_control.resume()")
        < text.index("consumer.resume_flow()")
    )
    assert "self.clear()" in source(FlowControlEvent.resume)


def test_recovery_counts_down_from_offsets_and_highwaters_that_can_be_corrected():
    app = made_app()
    recovery = app.tables.recovery
    assert recovery.active_offsets == {}
    assert recovery.active_highwaters == {}
    assert recovery.active_tps == set()
    assert "highwater - offsets[tp]" in source(Recovery.active_remaining)
    assert "value - 1 if value is not None else -1" in source(Recovery._build_highwaters)
    assert "offset - 1 if offset is not None" in source(Recovery._build_offsets)
    assert "consumer.seek_wait(new_offsets)" in source(Recovery._seek_offsets)
    assert "assigned_actives()" in source(Recovery.on_rebalance)


def test_the_assignor_holds_what_it_was_told():
    assignor = made_app().assignor
    assert isinstance(assignor, PartitionAssignor)
    assignor._assignment = ClientAssignment(actives={"t": [0, 2]}, standbys={})
    assignor._active_tps, assignor._standby_tps = {TP("t", 0), TP("t", 2)}, set()

    assert assignor.assigned_actives() == {TP("t", 0), TP("t", 2)}
    assert assignor.assigned_standbys() == set()
    assert assignor.is_active(TP("t", 2))
    assignor.changelog_distribution = {"http://a": {"t": [0, 2]}}
    assert assignor._tps_url[TP("t", 2)] == "http://a"


def test_tables_tell_of_changes_through_two_methods():
    app = made_app()
    table = app.Table("counts", default=int, partitions=1)
    assert type(table).on_key_set is Table.on_key_set
    assert parameters(Table.on_key_set) == ["self", "key", "value"]
    assert parameters(Table.on_key_del) == ["self", "key"]
    assert "self.on_key_set(key, value)" in source(mode.utils.collections.ManagedUserDict)
    for part in ("partition_for_key(key)", "_maybe_set_key_ttl(key", "_sensor_on_set(self, key"):
        assert part in source(Table.on_key_set)
    assert app.tables._changelogs == {table.changelog_topic_name: table}
    assert "changelog_topics" in dir(TableManager)
    told = []
    table.on_key_set = lambda key, value: told.append((key, value))
    table["k"] = 3
    assert told == [("k", 3)]
    assert table.data["k"] == 3


def test_a_conductor_indexes_channels_by_partition():
    made = conductor.Conductor(made_app())
    assert made._tp_index == {}
    assert "tp_index[tp].add(topic)" in source(conductor.Conductor._update_tp_index)
    assert "_resubscribe_sleep_lock_seconds" in source(conductor.Conductor._subscriber)
    assert "channels - delivered" in source(conductor.ConductorCompiler.build)


async def test_queues_take_events_and_say_when_there_is_room():
    queue = ThrowableQueue(maxsize=10, flow_control=FlowControlEvent(initially_suspended=False))
    called = asyncio.Event()
    for number in range(10):
        queue.force_put_nowait(number)
    queue._pending_pressure_drop_callbacks.add(called.set)
    for _ in range(6):
        await queue.get()
    assert not called.is_set()
    await queue.get()
    assert called.is_set()


def test_messages_have_room_for_the_stored_time():
    assert parameters(ConsumerMessage.__init__)[1:14] == [
        *("topic", "partition", "offset", "timestamp", "timestamp_type", "headers", "key"),
        *("value", "checksum", "serialized_key_size", "serialized_value_size", "tp", "time_in"),
    ]
    assert ConsumerMessage.use_tracking


def test_decoding_has_the_parts_that_are_compiled():
    registry = Registry()
    assert registry._serializer(int, None, "json") == "json"
    assert registry._prepare_payload(int, "3") == 3
    assert parameters(faust.Schema.compile)[:2] == ["self", "app"]


def test_a_producers_buffer_is_flushed_apart():
    assert producer.ProducerBuffer.max_messages == 100
    for name in ("flush", "wait_until_ebb", "size"):
        assert hasattr(producer.ProducerBuffer, name)


def test_a_crash_is_noted_in_an_event():
    service = made_app()
    assert not service._crashed.is_set()
    service._crash(RuntimeError("why"))
    assert service._crashed.is_set()
    assert str(service.crash_reason) == "why"


def test_nats_py_parses_and_dispatches_through_what_is_taken_over():
    client = Client()
    assert type(client._ps) is Parser
    assert bytes(client._ps.buf) == b""
    assert client._ps.state == AWAITING_CONTROL_LINE
    assert parameters(Client._process_msg) == [
        *("self", "sid", "subject", "reply", "data", "headers")
    ]
    assert "await self._ps.parse(b)" in source(Client._read_loop)
    assert "await self.nc._process_msg(sid, subject, reply, payload, hdr)" in source(Parser.parse)
    assert Subscription(client, 7)._id == 7


@pytest.mark.parametrize("setting", ["consumer_group_instance_id", "broker_client_id", "reply_to"])
def test_settings_that_are_read_exist(setting):
    assert hasattr(made_app().conf, setting)


def test_a_raw_subscription_is_ended_as_nats_py_does_it_without_waiting():
    assert unsub_cmd(7, 0) == b"UNSUB 7 \r\n"
    assert "self._pending.append(cmd)" in source(Client._send_command)
    assert "self._pending_data_size += len(cmd)" in source(Client._send_command)
    assert parameters(Client._remove_sub)[:2] == ["self", "sid"]
    assert "self._wait_for_msgs_task" in source(Subscription)


def test_a_flush_that_nobody_answers_is_bounded():
    assert "flush_timeout" in parameters(Client.connect)
    assert "asyncio.wait_for(future, self._flush_timeout)" in source(Client._flush_pending)


def test_the_event_being_handled_is_known_and_keys_are_set_after_the_hook():
    assert callable(current_event)
    assert "on_final_ack" in source(ConsumerMessage)
    setting = source(ManagedUserDict.__setitem__)
    assert setting.index("self.on_key_set") < setting.index("self.data[key]")
