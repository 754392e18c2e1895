"""Settings say what is wrong with them, and the machine's market is the same again."""

import os

import pytest

from spotline.adapters.clouds.local.market import machine_market
from spotline.adapters.clouds.local.settings import LocalCloudSettings
from spotline.bootstrap.cloud_settings import WrongCloudSettings
from spotline.bootstrap.clouds import cloud_of
from spotline.contracts.errors import ConfigError
from spotline.domain.modes import Mode


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"notice_lead_s": -1}, "notice_lead_s must be >= 0, was -1"),
        ({"sold_out_s": -1}, "sold_out_s must be >= 0, was -1"),
        ({"sudden_share": 1.5}, r"sudden_share must lie in 0\.\.1, was 1.5"),
        ({"reclaim_spread": -0.1}, r"reclaim_spread must lie in 0\.\.1, was -0.1"),
        ({"cpu_share": float("nan")}, "cpu_share must be finite and >= 0"),
        ({"cpu_share_by": "luck"}, "cpu_share_by must be one of auto, cgroup, turns, was 'luck'"),
        ({"stop_grace_s": -1.0}, "stop_grace_s must be finite"),
        ({"most_instances": -1}, "most_instances must be >= 0"),
        ({"slot_s": 0}, "slot_s must be >= 1"),
        ({"price_usd_per_instance_hour": 0.0}, "price_usd_per_instance_hour must be finite"),
        ({"command": "sh -c 'oops"}, "command must be words of a shell"),
        ({"run_as": "acme=a,other"}, "run_as must be a user or TENANT=USER pairs"),
        ({"run_as": "acme=a,other=a"}, "each tenant with a user of its own"),
        ({"run_as": "acme=a,acme=b"}, "run_as must be a user or TENANT=USER pairs"),
    ],
    ids=lambda stated: next(iter(stated)) if isinstance(stated, dict) else "",
)
def test_what_is_wrong_is_named(stated, words):
    with pytest.raises(ValueError, match=words):
        LocalCloudSettings(**stated)


def test_a_variable_that_is_wrong_is_named():
    environ = {"SPOTLINE_CLOUD_LOCAL_SUDDEN_SHARE": "2"}

    with pytest.raises(WrongCloudSettings, match="SPOTLINE_CLOUD_LOCAL_SUDDEN_SHARE: sudden_share"):
        cloud_of(environ, "local", Mode.LIVE)


def test_users_are_one_for_all_or_one_for_each_tenant():
    assert LocalCloudSettings().users == {"": ""}
    assert LocalCloudSettings(run_as="ada").users == {"": "ada"}
    assert LocalCloudSettings(run_as="acme=ada, other=bo").users == {"acme": "ada", "other": "bo"}


def test_no_notice_is_guaranteed_where_some_get_none():
    assert LocalCloudSettings(notice_lead_s=60).guaranteed_notice_s == 60
    assert LocalCloudSettings(notice_lead_s=60, sudden_share=0.1).guaranteed_notice_s == 0


def test_the_market_of_the_machine_sells_on_demand_alone_and_lasts(tmp_path):
    settings = LocalCloudSettings(most_instances=3, price_usd_per_instance_hour=0.5, slot_s=60)

    market = machine_market(settings, tmp_path, "Work_Station.example")

    (offering,) = market.offerings
    quote = market.quote(7, 0)
    assert offering.offering_id == "local:work-station-example"
    assert (quote.spot_available.instances, quote.on_demand_available.instances) == (0, 3)
    assert quote.on_demand_price_micro_usd == 500_000
    assert market.slots * market.slot_s >= 365 * 86_400


def test_a_store_keeps_its_market_and_refuses_other_slots(tmp_path):
    first = machine_market(LocalCloudSettings(), tmp_path, "host")

    again = machine_market(LocalCloudSettings(), tmp_path, "host")

    assert (again.start_ns, again.slot_s) == (first.start_ns, 300)
    with pytest.raises(ConfigError, match=r"slot length must be 300 s, .* was 60; use another"):
        machine_market(LocalCloudSettings(slot_s=60), tmp_path, "host")
    (tmp_path / "local_market.json").write_text("{}")
    with pytest.raises(ConfigError, match="must hold start_ns and slot_s"):
        machine_market(LocalCloudSettings(), tmp_path, "host")


def test_who_dies_within_writing_the_market_leaves_none(tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        machine_market(LocalCloudSettings(), tmp_path, "host")
    monkeypatch.undo()

    assert machine_market(LocalCloudSettings(), tmp_path, "host").slot_s == 300
