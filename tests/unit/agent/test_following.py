import pytest

from spotline.adapters.grpc.agent.messages import Order, OrderState
from spotline.agent.following import InstanceStanding, Step, next_step


def after(state: str, generation: int, *, running: int = 0, last: int = 0, leaving=False) -> Step:
    order = Order(job_id="j", generation=generation, state=OrderState[state])
    return next_step(order, InstanceStanding(running=running, last=last, leaving=leaving))


@pytest.mark.parametrize(
    ("state", "generation", "running", "last", "step"),
    [
        ("WAIT", 0, 0, 0, Step.NOTHING),
        ("WAIT", 2, 1, 0, Step.STOP),
        ("WAIT", 1, 1, 0, Step.STOP),
        ("RUN", 1, 0, 0, Step.START),
        ("RUN", 1, 1, 0, Step.NOTHING),
        ("RUN", 1, 0, 1, Step.NOTHING),  # it ended by itself: what follows is not ours to say
        ("RUN", 2, 1, 0, Step.STOP),  # no two generations at a time
        ("RUN", 2, 0, 1, Step.START),
        ("RUN", 1, 2, 0, Step.NOTHING),  # an order that was overtaken
        ("STOP", 1, 1, 0, Step.STOP),
        ("STOP", 1, 0, 1, Step.NOTHING),
        ("STOP", 1, 0, 0, Step.DISOWN),  # its end is waited for, and it never began here
        ("STOP", 0, 0, 0, Step.NOTHING),
        ("STOP", 2, 1, 0, Step.STOP),
        ("ABORT", 1, 1, 0, Step.KILL),
        ("ABORT", 1, 0, 0, Step.DISOWN),
        ("ABORT", 1, 0, 1, Step.NOTHING),
        ("LEAVE", 3, 1, 0, Step.STOP),
        ("LEAVE", 3, 0, 1, Step.FINISH),
        ("OVER", 1, 1, 0, Step.KILL),
        ("OVER", 1, 0, 0, Step.FINISH),
    ],
)
def test_what_follows_from_an_order(state, generation, running, last, step):
    assert after(state, generation, running=running, last=last) is step


@pytest.mark.parametrize("state", [state.name for state in OrderState])
def test_an_instance_that_ends_saves_first_whatever_it_was_told(state):
    assert after(state, 1, running=1, leaving=True) is Step.STOP
    assert after(state, 1, leaving=True) is Step.FINISH


def test_without_an_order_nothing_is_done():
    assert next_step(None, InstanceStanding()) is Step.NOTHING
    assert next_step(None, InstanceStanding(leaving=True)) is Step.FINISH


@pytest.mark.parametrize("state", [state.name for state in OrderState])
@pytest.mark.parametrize("generation", range(3))
@pytest.mark.parametrize("running", range(3))
@pytest.mark.parametrize("last", range(3))
def test_a_program_is_started_only_where_none_runs_and_never_twice(
    state, generation, running, last
):
    if after(state, generation, running=running, last=last) is Step.START:
        assert running == 0
        assert generation > last
