"""What a user would have to write down of the rehearsed accounts: configuration and credentials."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from spotline.domain.units import MICRO_USD_PER_USD, rfc3339_of_ns
from spotline.rehearsal.aws.accounts import RehearsedAccount
from spotline.rehearsal.aws.ec2.resources import groups, subnet_of, template_of
from spotline.rehearsal.aws.identity import CERTIFICATE
from spotline.rehearsal.aws.places import SoldPlace
from spotline.rehearsal.aws.world import RehearsedWorld

CREDENTIALS = "credentials"
# Time that stands is no line: as good as none, until it is moved.
_STANDING_S_PER_S = 1e-9


def write_config(
    world: RehearsedWorld,
    path: Path,
    state: Path,
    endpoint_url: str,
    queues: Mapping[str, Mapping[str, str]],
) -> None:
    """Write a `spotline.yaml` of all accounts and offerings; secrets into files of their own.

    Parameters
    ----------
    queues
        URLs of the queues that are told of interruptions, by account's name and region.
    """
    clock = dict(world.clock.described())
    clock["market_s_per_s"] = clock["market_s_per_s"] or _STANDING_S_PER_S
    first = world.accounts[0]
    section = {
        "endpoint_url": endpoint_url,
        "clock": clock,
        "accounts": [
            _account(account, first, state, queues.get(account.name, {}))
            for account in world.accounts
        ],
        "offerings": _offerings(world),
        **_savings_plans(world),
        # By which instances prove that they are these accounts'.
        "identity_certificates": str((state / CERTIFICATE).absolute()),
    }
    said = {
        "cloud": "aws",
        "mode": "live",
        "market": {"slot": world.places.market.slot_s},
        "clouds": {"aws": section},
    }
    text = "# Written by `spotline rehearse aws`: no account of these is AWS's.\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + yaml.safe_dump(said, sort_keys=False), encoding="utf-8")


def write_credentials(world: RehearsedWorld, state: Path) -> Path:
    """Write AWS's shared credentials file: the first account's are the default, each has a profile."""
    lines: list[str] = []
    for name, account in [("default", world.accounts[0])] + [
        (account.name, account) for account in world.accounts if account.name != "default"
    ]:
        lines += [
            f"[{name}]",
            f"aws_access_key_id = {account.access_key_id}",
            f"aws_secret_access_key = {account.secret_access_key}",
            "",
        ]
    path = state / CREDENTIALS
    _write_secret(path, "\n".join(lines))
    return path


def _account(
    account: RehearsedAccount, first: RehearsedAccount, state: Path, queues: Mapping[str, str]
) -> dict[str, Any]:
    said: dict[str, Any] = {
        "name": account.name,
        "account_id": account.account_id,
        "mode": "live",
    }
    # The environment has the first account's keys: into the others one comes by their role.
    if account is not first and account.roles:
        role = account.roles[0]
        secret = state / f"external-id-{account.account_id}"
        _write_secret(secret, role.external_id)
        said["role_arn"] = role.arn
        said["external_id"] = {"file": str(secret.absolute())}
    if queues:
        said["queues"] = dict(queues)
    return said


def _offerings(world: RehearsedWorld) -> list[dict[str, Any]]:
    """All that is sold; of a place and its reservation, one: they are the same offering of AWS."""
    said: dict[tuple[str, str, str], dict[str, Any]] = {}
    by_kind = sorted(world.places.places.values(), key=lambda place: bool(place.reservation))
    for place in by_kind:
        key = place.account_id, place.zone, place.instance_type
        said.setdefault(key, _offering(world, place))
    return list(said.values())


def _offering(world: RehearsedWorld, place: SoldPlace) -> dict[str, Any]:
    group = next(
        one.name
        for one in groups(world, place.account_id, place.region).values()
        if one.zone == place.zone
    )
    said = {
        "account": world.account(place.account_id).name,
        "region": place.region,
        "zone": place.zone,
        "instance_type": place.instance_type,
        "gpu_model": place.gpu_model,
        "gpus_per_instance": place.gpus,
        "launch_template_id": template_of(place).template_id,
        "subnet_id": subnet_of(world, place).subnet_id,
        "placement_group": group,
    }
    if place.disk_gb:
        said["disk_gb"] = place.disk_gb
        said["disk_usd_per_gb_month"] = place.disk_micro_usd_per_gb_month / MICRO_USD_PER_USD
    if place.reservation:
        said["capacity_reservation_id"] = place.reservation
        said["reserved_instances"] = place.reserved
        said["reserved_usd_per_hour"] = place.sunk_price_micro_usd / MICRO_USD_PER_USD
        if place.reservation_ends_ns:
            said["reserved_until"] = rfc3339_of_ns(place.reservation_ends_ns)
    return said


def _savings_plans(world: RehearsedWorld) -> dict[str, Any]:
    plans = []
    for plan in world.places.plans:
        rates = {(kind, price) for (_, _, kind), price in plan.prices.items()}
        if len(rates) != len({kind for kind, _ in rates}):
            raise ValueError(f"plan {plan.plan_id} must have one price of each type, has several")
        accounts = sorted({world.account(account_id).name for account_id, _, _ in plan.prices})
        said: dict[str, Any] = {
            "id": plan.plan_id,
            "usd_per_hour": plan.micro_usd_per_hour / MICRO_USD_PER_USD,
            "usd_per_instance_hour": {
                kind: price / MICRO_USD_PER_USD for (_, _, kind), price in plan.prices.items()
            },
            "accounts": accounts,
            "regions": sorted({region for _, region, _ in plan.prices}),
        }
        if plan.ends_ns:
            said["until"] = rfc3339_of_ns(plan.ends_ns)
        plans.append(said)
    return {"savings_plans": plans} if plans else {}


def _write_secret(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
