"""On paper no cloud is called; in a live run none before its account is promoted."""

from dataclasses import replace

import pytest

from spotline.adapters.clouds.simulated.driver import SimulatedCloudDriver
from spotline.adapters.ledger.threaded import ThreadedLedger
from spotline.application.cloud_actuator.actuation import CloudActuation
from spotline.application.cloud_actuator.options import ActuationOptions
from spotline.application.market_ingest.handler import account_modes
from spotline.contracts.errors import ConfigError
from spotline.domain.events.capacity import CostAccrued, LaunchRefused
from spotline.domain.events.market import MarketOpened
from spotline.domain.events.modes import AccountModeSet
from spotline.domain.market.offering import Offering
from spotline.domain.modes import Mode, StatedModes
from tests.fakes.actuator import SLOT_S, Rig, lot, opened, quote, reported, running_in

ON_PAPER = StatedModes(run=Mode.OBSERVE)
UNPROMOTED = StatedModes(accounts=Mode.OBSERVE)
ACCOUNT = "aws/1"
WHERE = Offering(
    offering_id="a",
    provider="aws",
    account="1",
    region="r",
    zone="z",
    instance_type="g",
    gpu_model="A100",
    gpus_per_instance=8,
    quota_pool="pool",
)
MARKET = MarketOpened(offerings=(WHERE,), slot_s=SLOT_S, first_slot_start_ns=0, source="t")


class Untouchable:
    """A cloud that is looked at, and fails the test where it is asked to start or end anything."""

    def __init__(self, cloud) -> None:
        self._cloud = cloud
        self.notice_lead_s = cloud.notice_lead_s

    async def launch(self, request):
        raise AssertionError(f"a launch of {request.instances} reached the cloud")

    async def terminate(self, owner, instance_ids):
        raise AssertionError(f"the end of {instance_ids} reached the cloud")

    def __getattr__(self, name):
        return getattr(self._cloud, name)


def behind(rig: Rig, cloud) -> None:
    """Have the rig act on another provider."""
    rig.actuation = CloudActuation(
        cloud, ThreadedLedger(rig.ledger), ActuationOptions(modes=rig.modes)
    )
    rig.perform = SimulatedCloudDriver(rig.cloud, rig.actuation.perform)


def set_to(mode: Mode) -> AccountModeSet:
    return AccountModeSet(account=ACCOUNT, mode=mode, by="ada", reason="a good week on paper")


@pytest.fixture
def rig(tmp_path):
    made = Rig(tmp_path, modes=UNPROMOTED)
    yield made
    made.close()


async def test_no_real_cloud_is_called_before_its_account_is_promoted(rig) -> None:
    behind(rig, Untouchable(rig.cloud))
    await rig.actuation.start()
    rig.call(MARKET)

    await rig.feed(opened(0))
    refused, report = await rig.decide(0, 0, 0, [("j", lot(spot=2))])
    rig.call(set_to(Mode.SHADOW))
    shadowed, _ = await rig.decide(0, 1, 0, [("j", lot(on_demand=1))])

    assert isinstance(refused, LaunchRefused)
    assert isinstance(shadowed, LaunchRefused)
    assert "aws/1' is in mode observe" in refused.detail
    assert "mode:aws/1" in shadowed.detail
    assert report.holdings == ()


@pytest.mark.parametrize("begins", [Mode.LIVE, Mode.SHADOW])
async def test_an_account_begins_as_its_owner_stated_and_others_observed(tmp_path, begins) -> None:
    rig = Rig(tmp_path, modes=replace(UNPROMOTED, named={ACCOUNT: begins}))
    await rig.actuation.start()
    rig.call(MARKET)
    for event in account_modes(MARKET.offerings, rig.modes):
        rig.call(event)
    await rig.feed(opened(0))

    await rig.decide(0, 0, 0, [("j", lot(spot=2))])

    assert len(await running_in(rig.cloud)) == (2 if begins is Mode.LIVE else 0)
    rig.close()


def test_a_log_says_which_accounts_do_not_begin_live() -> None:
    others = (WHERE, replace(WHERE, offering_id="b", account="2"))
    modes = replace(UNPROMOTED, named={ACCOUNT: Mode.LIVE})

    said = [(event.account, event.mode) for event in account_modes(others, modes)]

    assert said == [("aws/2", Mode.OBSERVE)]
    assert [*account_modes(others, replace(modes, run=Mode.SHADOW))] == []
    assert [*account_modes(others, StatedModes())] == []


async def test_a_promoted_account_is_bought_in_and_a_demoted_one_only_released(rig) -> None:
    await rig.actuation.start()
    rig.call(MARKET)
    rig.call(set_to(Mode.LIVE))
    await rig.feed(opened(0))
    bought = reported(await rig.decide(0, 0, 0, [("j", lot(spot=2))]))

    rig.call(set_to(Mode.OBSERVE))
    refused, *_ = await rig.decide(0, 1, 60, [("j", lot(spot=3))])
    kept = len(await running_in(rig.cloud))
    await rig.decide(0, 2, 120, [("j", lot())])

    assert sum(held.lots[0].spot for held in bought.holdings) == 2
    assert isinstance(refused, LaunchRefused)
    assert kept == 2
    assert await running_in(rig.cloud) == []


async def test_an_operator_who_lifts_the_stop_still_reaches_no_cloud(rig) -> None:
    behind(rig, Untouchable(rig.cloud))
    rig.call(MARKET)
    rig.call(set_to(Mode.OBSERVE))
    rig.state.freezes.end("mode:aws/1")
    await rig.feed(opened(0))

    refused, _ = await rig.decide(0, 0, 0, [("j", lot(spot=2))])

    assert (refused.granted, "is in mode observe" in refused.detail) == (0, True)


async def test_a_restart_that_holds_instances_may_end_them_before_it_has_read_the_log(rig) -> None:
    await rig.actuation.start()
    rig.call(MARKET)
    rig.call(set_to(Mode.LIVE))
    await rig.feed(opened(0))
    await rig.decide(0, 0, 0, [("j", lot(spot=1))])
    asked = []

    class Listening(Untouchable):
        async def terminate(self, owner, instance_ids):
            asked.append((owner.epoch, tuple(instance_ids)))

    behind(rig, Listening(rig.cloud))
    await rig.actuation.start()

    assert asked == [(rig.ledger.owner.epoch, ())]


async def test_on_paper_what_is_believed_is_granted_and_marked(tmp_path) -> None:
    rig = Rig(tmp_path, modes=ON_PAPER)
    paper = lambda slot, **how: replace(opened(slot, quote(**how)), mode=Mode.OBSERVE)  # noqa: E731
    await rig.feed(paper(0, spot=2))

    refused, *_, report = await rig.decide(0, 0, 0, [("j", lot(spot=3))])
    await rig.feed(paper(1, spot=1))
    answers = await rig.decide(1, 0, 0, [("j", lot(spot=2))])

    assert (refused.granted, refused.requested) == (2, 3)
    assert all(name.startswith("paper-") for name in report.holdings[0].instance_ids)
    assert len(report.holdings[0].instance_ids) == 2
    # One was more than there is in the second slot.
    assert len(reported(answers).holdings[0].instance_ids) == 1
    rig.close()


async def test_on_paper_bills_are_made_as_they_would_be_sent(tmp_path) -> None:
    rig = Rig(tmp_path, modes=ON_PAPER)
    await rig.feed(replace(opened(0), mode=Mode.OBSERVE))
    await rig.decide(0, 0, 0, [("j", lot(spot=2))])

    answers = await rig.feed(replace(opened(1), mode=Mode.OBSERVE))

    (cost,) = [one for one in answers if isinstance(one, CostAccrued)]
    assert cost.cost_micro_usd == 2 * 1_000_001 * SLOT_S // 3600
    rig.close()


@pytest.mark.parametrize(
    ("modes", "said"), [(ON_PAPER, None), (StatedModes(), Mode.OBSERVE), (UNPROMOTED, Mode.SHADOW)]
)
async def test_paper_and_money_share_no_log(tmp_path, modes, said) -> None:
    rig = Rig(tmp_path, modes=modes)
    call = rig.call(replace(opened(0), mode=said))

    with pytest.raises(ConfigError, match=r"mode: expected .*, as the log is, found"):
        await rig.perform(call)
    rig.close()
