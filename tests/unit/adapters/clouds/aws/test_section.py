"""`clouds.aws` of a spotline.yaml: accounts and offerings, and what of them is refused."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import yaml

from spotline.adapters.clouds.aws.section import (
    _AccountPart,
    _AwsPart,
    _OfferingsPart,
    read_section,
)
from spotline.adapters.clouds.aws.settings import (
    AwsAccount,
    AwsOffering,
    AwsSettings,
    is_loopback,
)
from spotline.adapters.files.mistake import BadFile, SecretText
from spotline.domain.market.market_clock import MarketClock
from spotline.domain.market.offering import Disks, Reservation
from spotline.domain.modes import Mode

GOOD = """
accounts:
- {name: research, account_id: "000000000001"}
offerings:
- account: research
  region: us-east-1
  zones: [use1-az1, use1-az2]
  instance_types: [p4d.24xlarge, p3.2xlarge]
  launch_templates: {p4d.24xlarge: lt-0a, p3.2xlarge: lt-0b}
  subnets: {use1-az1: subnet-0a}
"""
REHEARSED = "http://127.0.0.1:8123"


def section(change: Any = None) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(GOOD)
    if change is not None:
        change(read)
    return read


def test_selectors_become_an_offering_for_each_zone_and_instance_type() -> None:
    settings = read_section(section())

    found = [
        (each.zone, each.instance_type, each.gpu_model, each.gpus_per_instance, each.subnet_id)
        for each in settings.offerings
    ]
    assert found == [
        ("use1-az1", "p4d.24xlarge", "a100-40gb", 8, "subnet-0a"),
        ("use1-az1", "p3.2xlarge", "v100", 1, "subnet-0a"),
        ("use1-az2", "p4d.24xlarge", "a100-40gb", 8, ""),
        ("use1-az2", "p3.2xlarge", "v100", 1, ""),
    ]
    assert {each.launch_template_id for each in settings.offerings} == {"lt-0a", "lt-0b"}
    assert settings.accounts == (AwsAccount(name="research", account_id="000000000001"),)
    assert settings.account_modes() == {"aws/research": Mode.OBSERVE}


def test_a_rehearsal_has_a_clock_and_accounts_that_are_live_and_types_of_its_own() -> None:
    settings = read_section(
        {
            "endpoint_url": REHEARSED,
            "clock": {"wall_ns": 5, "market_ns": 7, "market_s_per_s": 60},
            "accounts": [{"name": "default", "account_id": "000000000001", "mode": "live"}],
            "offerings": [
                {
                    **{"account": "default", "region": "east-1", "zone": "us-east-1a"},
                    **{"instance_type": "a100-1x", "gpu_model": "a100", "gpus_per_instance": 1},
                    "launch_template_id": "lt-0123456789abcdef0",
                }
            ],
        }
    )

    assert settings.rehearsed
    assert settings.clock == MarketClock(wall_ns=5, market_ns=7, market_s_per_s=60.0)
    assert settings.account_modes() == {"aws/default": Mode.LIVE}


def test_a_commitment_is_an_offering_of_its_own_beside_what_is_bought_there() -> None:
    def reserve(read: dict[str, Any]) -> None:
        place = {"account": "research", "region": "us-east-1", "zone": "use1-az1"}
        read["offerings"].append(
            {
                **{**place, "instance_type": "p3.2xlarge", "launch_template_id": "lt-0c"},
                **{"capacity_reservation_id": "cr-0a", "capacity_block": True},
                **{"reserved_instances": 4, "reserved_until": "1971-01-01T00:00:00Z"},
                "reserved_usd_per_hour": 1.5,
            }
        )

    offering = read_section(section(reserve)).offerings[-1]

    assert offering.offering_id == "aws:research:use1-az1:p3.2xlarge/reserved/cr-0a"
    assert offering.capacity_block
    assert offering.reservation == Reservation(
        instances=4, ends_ns=365 * 86_400 * 10**9, sunk_price_micro_usd=1_500_000
    )


def test_a_savings_plan_adds_an_offering_for_each_that_it_covers() -> None:
    stated = {
        "id": "sp-1",
        "usd_per_hour": 10,
        "usd_per_instance_hour": {"p3.2xlarge": 3},
        "accounts": ["research"],
        "until": "1971-01-01T00:00:00Z",
    }

    settings = read_section(section(lambda read: read.update(savings_plans=[stated])))

    planned = [each for each in settings.offerings if each.savings_plan]
    covered = {
        each.offering_id
        for each in settings.offerings
        if each.instance_type == "p3.2xlarge" and not each.savings_plan
    }
    assert {each.offering_id for each in planned} == {f"{name}/reserved/sp-1" for name in covered}
    assert {each.reservation for each in planned} == {
        Reservation(
            instances=3,
            ends_ns=365 * 86_400 * 10**9,
            sunk_price_micro_usd=3_000_000,
            plan="sp-1",
            plan_micro_usd_per_hour=10_000_000,
        )
    }


def test_disks_are_of_each_offering_of_an_entry() -> None:
    def add(read: dict[str, Any]) -> None:
        for entry in read["offerings"]:
            entry.update(disk_gb=200, disk_usd_per_gb_month=0.08)

    offerings = read_section(section(add)).offerings

    assert {each.disks for each in offerings} == {Disks(gb=200, micro_usd_per_gb_month=80_000)}
    assert {each.disks for each in read_section(section(lambda read: None)).offerings} == {None}


def test_everything_that_can_be_set_has_its_key() -> None:
    """Fields of the settings that the file has no word for could not be set at all."""
    for settings, part in ((AwsSettings, _AwsPart), (AwsAccount, _AccountPart)):
        assert {each.name for each in fields(settings)} == set(part.model_fields)
    selectors = {"zones", "instance_types", "launch_templates", "subnets", "placement_groups"}
    keys = {each.name.replace("until_ns", "until") for each in fields(AwsOffering)}
    # What a plan covers follows from the plan.
    assert keys - {"savings_plan"} == set(_OfferingsPart.model_fields) - selectors


def plans(*several: Any, **one: Any) -> Any:
    return lambda read: read.update(savings_plans=[*several, *([one] if one else [])])


def set_account(**fields: Any) -> Any:
    return lambda read: read["accounts"][0].update(fields)


def set_entry(**fields: Any) -> Any:
    def change(read: dict[str, Any]) -> None:
        entry = read["offerings"][0]
        entry.update(fields)
        for name in [name for name in entry if entry[name] is ...]:
            del entry[name]

    return change


def put(**fields: Any) -> Any:
    return lambda read: read.update(fields)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put(accounts=[]), "accounts: expected at least one entry, found an empty list"),
        (
            put(acounts=[]),
            "acounts: expected a known field (did you mean accounts?), found acounts",
        ),
        (
            set_account(account_id=1),
            'accounts[0].account_id: expected the 12 digits of an account, in quotes: "012345678901"'
            ", found 1",
        ),
        (
            set_account(mode="live"),
            "accounts[0].mode: expected observe or shadow: an account goes live by a command that is "
            "audited, spotline promote aws/research --to live --reason WHY, found 'live'",
        ),
        (
            set_account(external_id="hunter2", role_arn="arn:aws:iam::123456789012:role/r"),
            "accounts[0].external_id: expected a secret by where it stands, {env: NAME} or {file: "
            "PATH}: no secret stands in this file itself, found text (not shown: it may be a secret)",
        ),
        (
            set_account(external_id=SecretText("hunter2", "env E")),
            "accounts[0].role_arn: expected a role, as its owner demands an external_id with it, "
            "found none",
        ),
        (
            set_account(role_arn="spotline"),
            "accounts[0].role_arn: expected arn:aws:iam::ACCOUNT:role/NAME, found 'spotline'",
        ),
        (
            lambda read: read["accounts"].append({"name": "b", "account_id": "000000000001"}),
            "accounts[1].account_id: expected another one than accounts[0] has, "
            "found '000000000001'",
        ),
        (
            set_entry(account="prod"),
            "offerings[0].account: expected an account of the section, one of research, found 'prod'",
        ),
        (
            set_entry(zones=...),
            "offerings[0].zones: expected zones or zone, found neither",
        ),
        (set_entry(zone="use1-az1"), "offerings[0].zone: expected zones or zone, found both"),
        (
            set_entry(zones=["use1-az1", "us-east-1b"]),
            "offerings[0].zones[1]: expected the id of a zone such as use1-az4, as names mean another "
            "zone in each account (aws ec2 describe-availability-zones says it), found 'us-east-1b'",
        ),
        (
            set_entry(launch_templates={"p4d.24xlarge": "lt-0a"}),
            "offerings[0].launch_templates.p3.2xlarge: expected a launch template of each instance "
            "type, found nothing",
        ),
        (
            set_entry(subnets={"use1-az9": "subnet-0a"}),
            "offerings[0].subnets.use1-az9: expected one of those listed beside it (use1-az1, "
            "use1-az2), found 'use1-az9'",
        ),
        (
            set_entry(instance_types=["x9.large"], launch_templates={"x9.large": "lt-0a"}),
            "offerings[0].gpu_model: expected gpu_model and gpus_per_instance of x9.large, which is "
            "none of those known here (",
        ),
        (
            set_entry(
                instance_types=["p3.2xlarge"],
                launch_templates={"p3.2xlarge": "lt-0a"},
                gpus_per_instance=4,
            ),
            "offerings[0].gpus_per_instance: expected 1, as p3.2xlarge has, found 4",
        ),
        (
            set_entry(capacity_reservation_id="cr-0a"),
            "offerings[0].capacity_reservation_id: expected one zone and one instance type, as a "
            "reservation has, found 4 offerings",
        ),
        (
            lambda read: read["offerings"].append(
                {
                    **{"account": "research", "region": "us-east-1", "zone": "use1-az1"},
                    **{"instance_type": "p3.2xlarge", "launch_template_id": "lt-0a"},
                }
            ),
            "offerings[1]: expected each account, zone and instance type once, found "
            "aws:research:use1-az1:p3.2xlarge again",
        ),
        (
            set_entry(reserved_instances=4),
            "offerings[0].capacity_reservation_id: expected the reservation that reserved_instances "
            "is said of, cr-..., found nothing",
        ),
        (
            set_entry(
                zones=["use1-az1"],
                instance_types=["p3.2xlarge"],
                launch_templates={"p3.2xlarge": "lt-0a"},
                capacity_reservation_id="cr-0a",
                reserved_usd_per_hour=2,
            ),
            "offerings[0].reserved_instances: expected how many instances are reserved, beside "
            "reserved_usd_per_hour, found nothing",
        ),
        (
            plans(id="p", usd_per_hour=1, usd_per_instance_hour={"p3.2xlarge": 2}),
            "savings_plans[0].usd_per_instance_hour.p3.2xlarge: expected > 0 and at most usd_per_hour "
            "(1), found 2",
        ),
        (
            plans(id="p", usd_per_hour=1, usd_per_instance_hour={"t3.micro": 0.01}),
            "savings_plans[0]: expected a plan that covers one of the offerings (p3.2xlarge",
        ),
        (
            plans(
                {"id": "p", "usd_per_hour": 3, "usd_per_instance_hour": {"p3.2xlarge": 2}},
                {"id": "p", "usd_per_hour": 3, "usd_per_instance_hour": {"p3.2xlarge": 2}},
            ),
            "savings_plans[1].id: expected another for each plan, found 'p'",
        ),
        (
            set_entry(disk_gb=200),
            "offerings[0].disk_usd_per_gb_month: expected it beside disk_gb, found nothing",
        ),
        (put(queue_wait_s=21), "queue_wait_s: expected a number <= 20, found 21"),
        (
            put(clock={"market_s_per_s": 60}),
            "clock: expected no clock beside AWS itself, whose time is wall time; a rehearsal's has "
            "its endpoint_url on this machine, found one",
        ),
        (
            put(endpoint_url="http://10.0.0.7:80"),
            "endpoint_url: expected https://..., or a rehearsal on this machine "
            "(http://127.0.0.1:PORT), found 'http://10.0.0.7:80'",
        ),
    ],
)
def test_a_mistake_names_its_field(change: Any, said: str) -> None:
    with pytest.raises(BadFile) as caught:
        read_section(section(change))

    (mistake,) = caught.value.mistakes
    assert str(mistake).startswith(said)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"endpoint_url": "http://aws.example:80"}, "endpoint_url must be https"),
        ({"endpoint_url": "https://me:secret@aws.example"}, "endpoint_url must have no password"),
        ({"endpoint_url": "http://me:secret@127.0.0.1:1"}, "endpoint_url must have no password"),
        ({"endpoint_url": "ftp://127.0.0.1"}, "endpoint_url must be http"),
        ({"endpoint_url": "127.0.0.1:80"}, "endpoint_url must be http"),
        ({"clock": MarketClock(market_s_per_s=60.0)}, "clock must be wall time"),
        ({"clock": MarketClock(wall_ns=7)}, "clock must be wall time"),
    ],
)
def test_what_a_variable_states_is_held_to_the_rules_of_the_file(changed: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        AwsSettings(**changed)

    assert "secret" not in str(caught.value)


def test_settings_made_in_code_keep_the_same_rule() -> None:
    live = AwsAccount(name="a", account_id="000000000001", mode=Mode.LIVE)

    assert AwsSettings(accounts=(live,), endpoint_url=REHEARSED).rehearsed
    with pytest.raises(ValueError, match="spotline promote aws/a --to live"):
        AwsSettings(accounts=(live,))


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:80", True),
        ("http://localhost:80", True),
        ("http://[::1]:80", True),
        ("https://ec2.us-east-1.amazonaws.com", False),
        ("http://127.0.0.1.example.com", False),
        ("http://localhost.example.com", False),
        ("", False),
    ],
)
def test_only_this_machine_is_a_rehearsal(url: str, here: bool) -> None:
    assert is_loopback(url) is here
