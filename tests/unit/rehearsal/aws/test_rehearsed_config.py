"""The configuration that a rehearsal writes is one that Spotline reads."""

from dataclasses import replace
from pathlib import Path

import yaml

from spotline.adapters.clouds.aws.section import read_section
from spotline.domain.market.offering import Reservation
from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.config_out import write_config
from tests.fakes.rehearsed_ec2 import FAR, P4D, START_NS, made_market, rehearsed_ec2


def written(tmp_path, market):
    with rehearsed_ec2(tmp_path, market) as rig:
        path = tmp_path / "spotline.yaml"
        write_config(rig.world, path, tmp_path, "http://127.0.0.1:1", {})
        section = yaml.safe_load(path.read_text())["clouds"]["aws"]
        section["accounts"] = section["accounts"][:1]
        mine = [one for one in section["offerings"] if one["account"] == "default"]
        return rig, read_section({**section, "offerings": mine})


def test_templates_and_subnets_are_those_of_the_rehearsal(tmp_path):
    rig, settings = written(tmp_path, made_market())
    (sold,) = [one for one in settings.offerings if (one.zone, one.instance_type) == (FAR, P4D)]

    assert sold.launch_template_id == rig.template(P4D)
    assert sold.subnet_id in {one["SubnetId"] for one in rig.call("DescribeSubnets")["Subnets"]}
    assert sold.placement_group == f"spotline-{FAR}"


def test_files_are_named_wherever_the_rehearsal_was_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with rehearsed_ec2(tmp_path, made_market()) as rig:
        write_config(rig.world, Path("spotline.yaml"), Path("state"), "http://127.0.0.1:1", {})
    section = yaml.safe_load(Path("spotline.yaml").read_text())["clouds"]["aws"]

    # A relative one would begin at the folder of the file.
    assert Path(section["identity_certificates"]).is_relative_to(tmp_path / "state")


def test_a_reservation_says_what_it_commits_to(tmp_path):
    held = Reservation(
        instances=3, sunk_price_micro_usd=21_500_000, ends_ns=START_NS + 10 * 3600 * NS_PER_S
    )
    market = made_market(reservation=held)
    # Alone in its zone: beside what anybody may buy it would be the same offering of AWS.
    offerings = tuple(
        replace(one, zone="use1-az3") if one.reservation else one for one in market.offerings
    )
    _, settings = written(tmp_path, replace(market, offerings=offerings))
    (sold,) = [one for one in settings.offerings if one.capacity_reservation_id]

    assert (sold.zone, sold.reserved_instances, sold.reserved_usd_per_hour) == ("use1-az3", 3, 21.5)
    assert sold.reserved_until_ns == held.ends_ns
