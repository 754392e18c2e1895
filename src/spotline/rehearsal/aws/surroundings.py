"""A rehearsed world with everything around EC2: served over HTTP until the block is left."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from starlette.types import ASGIApp

from spotline.rehearsal.aws.catalog import instance_type
from spotline.rehearsal.aws.cloud_trail import CloudTrail
from spotline.rehearsal.aws.ec2.resources import IMAGE_ID
from spotline.rehearsal.aws.events import EventBridge, envelope
from spotline.rehearsal.aws.fis import Fis
from spotline.rehearsal.aws.iam import Iam
from spotline.rehearsal.aws.identity import CERTIFICATE, IdentitySigner
from spotline.rehearsal.aws.imds import InstanceMetadata, MetadataService
from spotline.rehearsal.aws.messaging import BusRule, Messaging
from spotline.rehearsal.aws.places import ON_DEMAND
from spotline.rehearsal.aws.pricing import ListedType, Pricing
from spotline.rehearsal.aws.processes import InstanceProcesses, ProcessPlan
from spotline.rehearsal.aws.server import serve
from spotline.rehearsal.aws.service import Registry, Service
from spotline.rehearsal.aws.service_quotas import ServiceQuotas
from spotline.rehearsal.aws.sqs import Sqs
from spotline.rehearsal.aws.state import RUNNING, SHUTTING_DOWN, TERMINATED, Ec2Instance
from spotline.rehearsal.aws.state_log import StateLog, records_of
from spotline.rehearsal.aws.sts import RehearsedKeys, RehearsedRole, Sts
from spotline.rehearsal.aws.wire.signing import Credentials
from spotline.rehearsal.aws.world import (
    INTERRUPTION,
    REBALANCE,
    STATE_CHANGE,
    Event,
    RehearsedWorld,
)

QUEUE = "spotline-interruptions"
"""The queue, and the rule that fills it, in each region of each account."""


# As deploy/aws/notices.yaml, which a user has stood up, makes a queue and its rule.
_ATTRIBUTES = {
    "MessageRetentionPeriod": "3600",
    "VisibilityTimeout": "60",
    "ReceiveMessageWaitTimeSeconds": "20",
    "SqsManagedSseEnabled": "true",
}
_TEST_SOURCES, _TEST_TYPES = ("spotline.doctor",), ("Spotline Doctor",)

MESSAGES = "messaging.jsonl"
"""Name of the log of queues and rules in the folder of state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """How a world is served.

    Parameters
    ----------
    state
        Folder of the rehearsal: the identity certificate and what instances print go there.
    port
        0: any free one.
    instance_command
        What each instance runs as a process of this machine; empty: nothing.
    user_data
        What launch templates give instances, in base64.
    grace_s
        Wall seconds that a process has to end in.
    """

    state: Path
    port: int = 0
    instance_command: str = ""
    user_data: str = ""
    grace_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedWorld:
    """Where it is, and what stands there already.

    Parameters
    ----------
    queues
        URL of the queue that is told of interruptions, by name of the account and region.
    certificate
        By which signatures of instance identity documents are verified.
    """

    endpoint_url: str
    queues: Mapping[str, Mapping[str, str]]
    certificate: Path

    def metadata_url(self, instance_id: str) -> str:
        """What `AWS_EC2_METADATA_SERVICE_ENDPOINT` is on an instance."""
        return f"{self.endpoint_url}/{instance_id}/"


@dataclass(slots=True, kw_only=True)
class _Around:
    """The parts around EC2, wired to a world."""

    world: RehearsedWorld
    options: ServingOptions
    sqs: Sqs
    bridge: EventBridge
    keys: RehearsedKeys
    metadata: MetadataService
    processes: InstanceProcesses | None = None
    queues: dict[str, dict[str, str]] = field(default_factory=dict)

    def take_event(self, event: Event) -> None:
        said = envelope(
            event.account_id,
            event.region,
            event.detail_type,
            event.detail,
            resources=event.resources,
            at_ns=event.at_ns,
        )
        self.bridge.emit(said)

    def take_change(self, instance: Ec2Instance, change: str, at_ns: int) -> None:
        if self.processes is None or instance.foreign:
            return
        if change == RUNNING:
            said = user_data_of(instance, self.options.user_data)
            self.processes.start(instance.instance_id, instance.region, said)
        elif change == SHUTTING_DOWN:
            self.processes.stop(instance.instance_id)

    def stand_up_queues(self, *, new: bool) -> None:
        """Have a queue and a rule of each account and region, as a user's own set-up would.

        One that is not new has what it had: a queue that somebody deleted stays away.
        """
        sold = {(place.account_id, place.region) for place in self.world.places.places.values()}
        for account_id, region in sorted(sold):
            if new:
                stand_up_queue(self.sqs, self.bridge, account_id, region)
            queue = self.sqs.messaging.queues.get((account_id, region, QUEUE))
            if queue is not None:
                name = self.world.account(account_id).name
                self.queues.setdefault(name, {})[region] = self.sqs.url(queue)


@contextlib.asynccontextmanager
async def served(
    world: RehearsedWorld,
    ec2: Service,
    options: ServingOptions,
    *,
    control: ASGIApp | None = None,
    wrap: Callable[[Service], Service] = lambda service: service,
) -> AsyncIterator[ServedWorld]:
    """Serve a world, EC2 and what is around it; nothing happens by itself but `world.run()` is run.

    Parameters
    ----------
    control
        What answers below `/_rehearsal`.
    wrap
        Put around every service but EC2, which fails by itself.

    Raises
    ------
    OSError
        The port is taken.
    ValueError
        The command of instances is none.
    """
    async with contextlib.AsyncExitStack() as stack:
        messages = options.state / MESSAGES
        before = list(records_of(messages))
        messaging = Messaging(
            stack.enter_context(StateLog(messages)),
            seed=world.seed,
            copied_share=world.weather.double_share,
        )
        messaging.restore(before)
        around = _around(world, options, messaging)
        # First of all: the first call lets happen what fell due while nobody served.
        world.on_event(around.take_event)
        world.on_instance(around.take_change)
        url = await stack.enter_async_context(
            serve(
                services=_services(world, ec2, around, wrap),
                keys=around.keys,
                port=options.port,
                control=control,
                metadata=around.metadata,
            )
        )
        stack.callback(around.sqs.close)
        around.sqs.base_url = url
        around.stand_up_queues(new=not before)
        served_world = ServedWorld(
            endpoint_url=url, queues=around.queues, certificate=options.state / CERTIFICATE
        )
        if options.instance_command:
            plan = ProcessPlan(
                command=options.instance_command,
                folder=options.state / "instances",
                metadata_url=served_world.metadata_url,
                grace_s=options.grace_s,
            )
            around.processes = InstanceProcesses(plan)
            await stack.enter_async_context(around.processes.running())
        for instance in list(world.state.here.values()):
            around.take_change(instance, instance.state, world.now_ns())
        yield served_world


def _services(
    world: RehearsedWorld, ec2: Service, around: _Around, wrap: Callable[[Service], Service]
) -> Registry:
    services = Registry()
    services.add(ec2)
    for service in (
        Sts(around.keys, _roles(world)),
        around.sqs,
        around.bridge,
        Pricing(lambda: listed_types(world), now_ns=world.now_ns),
        ServiceQuotas(world.quotas),
        CloudTrail(world),
        Iam(lambda account_id: _role_arns(world, account_id), began_ns=world.places.start_ns),
        Fis(
            lambda where, instance_id, lead_s: interrupt_spot(world, where, instance_id, lead_s),
            now_ns=world.now_ns,
            seed=world.seed,
        ),
    ):
        services.add(wrap(service))
    return services


def stand_up_queue(sqs: Sqs, bridge: EventBridge, account_id: str, region: str) -> None:
    """Have the queue that EC2's events go to, with its policy and rule."""
    queue = sqs.create(account_id, region, QUEUE, _ATTRIBUTES)
    rule = BusRule(
        name=QUEUE,
        account_id=account_id,
        region=region,
        pattern=json.dumps(
            {
                "source": ["aws.ec2", *_TEST_SOURCES],
                "detail-type": [INTERRUPTION, REBALANCE, STATE_CHANGE, *_TEST_TYPES],
            }
        ),
        targets={QUEUE: queue.arn},
    )
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue.arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": rule.arn}},
    }
    in_the_clear = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "sqs:*",
        "Resource": queue.arn,
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    policy = {"Version": "2012-10-17", "Statement": [statement, in_the_clear]}
    sqs.set_policy(queue, json.dumps(policy))
    bridge.put_rule(rule)


def interrupt_spot(
    world: RehearsedWorld, where: tuple[str, str], instance_id: str, lead_s: float
) -> bool:
    """Interrupt a spot instance of an account and region; False: it is none that runs there."""
    world.settle()
    instance = world.state.instances.get(instance_id)
    if (
        instance is None
        or (instance.account_id, instance.region) != where
        or instance.state != RUNNING
        or not instance.is_spot
    ):
        return False
    if not instance.noticed_ns:
        world.interrupt(instance_id, lead_s)
    return True


def listed_types(world: RehearsedWorld) -> Iterator[ListedType]:
    """What the Price List says now: one price of each type and region.

    A market file may have several, by zone and account, where AWS has one: the dearest is listed.
    """
    now_ns = world.now_ns()
    dearest: dict[tuple[str, str], ListedType] = {}
    for place in world.places.places.values():
        if place.reservation:
            continue
        kind = instance_type(place.instance_type, place.gpu_model, place.gpus)
        listed = ListedType(
            region=place.region,
            instance_type=place.instance_type,
            vcpus=kind.vcpus,
            memory_gib=kind.memory_mib / 1024,
            gpus=kind.gpus,
            on_demand_micro_usd_per_hour=world.places.price_micro_usd(
                place.offering_id, ON_DEMAND, now_ns
            ),
        )
        key = place.region, place.instance_type
        there = dearest.get(key, listed)
        dearest[key] = max(there, listed, key=lambda one: one.on_demand_micro_usd_per_hour)
    yield from (dearest[key] for key in sorted(dearest))


def user_data_of(instance: Ec2Instance, of_template: str) -> bytes:
    """What an instance is given: by its own request, else by its launch template."""
    try:
        return base64.b64decode(instance.user_data or of_template)
    except ValueError:
        # EC2 hands on what is no base64 as it is.
        return instance.user_data.encode()


def metadata_of_instance(
    world: RehearsedWorld, of_template: str, instance_id: str
) -> InstanceMetadata | None:
    """What an instance is told of itself; None: there is none that could ask."""
    world.settle()
    instance = world.state.instances.get(instance_id)
    if instance is None or instance.state == TERMINATED:
        return None
    noticed = instance.noticed_ns and instance.in_metadata
    return InstanceMetadata(
        instance_id=instance_id,
        account_id=instance.account_id,
        region=instance.region,
        zone=instance.zone,
        instance_type=instance.instance_type,
        image_id=IMAGE_ID,
        private_ip=instance.private_ip,
        lifecycle=instance.lifecycle,
        launched_ns=instance.launched_ns,
        reservation_id=instance.reservation_id,
        placement_group=instance.placement_group,
        tags=instance.tags,
        user_data=user_data_of(instance, of_template),
        taken_ns=instance.taken_ns if noticed else None,
        rebalance_ns=instance.recommended_ns or None,
    )


def _around(world: RehearsedWorld, options: ServingOptions, messaging: Messaging) -> _Around:
    secret = hashlib.sha256(
        "|".join(account.secret_access_key for account in world.accounts).encode()
    ).digest()
    sqs = Sqs(messaging, now_ns=world.now_ns)
    return _Around(
        world=world,
        options=options,
        sqs=sqs,
        bridge=EventBridge(sqs),
        keys=RehearsedKeys(_owners(world), secret=secret),
        metadata=MetadataService(
            lambda instance_id: metadata_of_instance(world, options.user_data, instance_id),
            IdentitySigner(options.state),
            secret=secret,
        ),
    )


def _owners(world: RehearsedWorld) -> Iterator[Credentials]:
    for account in world.accounts:
        yield Credentials(
            access_key=account.access_key_id,
            secret_key=account.secret_access_key,
            account_id=account.account_id,
            arn=f"arn:aws:iam::{account.account_id}:user/{account.name}",
            user_id=f"AIDA{account.access_key_id[4:]}",
        )


def _role_arns(world: RehearsedWorld, account_id: str) -> tuple[str, ...]:
    return tuple(role.arn for role in world.account(account_id).roles)


def _roles(world: RehearsedWorld) -> Iterator[RehearsedRole]:
    for account in world.accounts:
        for role in account.roles:
            yield RehearsedRole(arn=role.arn, external_id=role.external_id)
