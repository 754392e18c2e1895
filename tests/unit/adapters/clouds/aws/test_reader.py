"""How feeds and checks ask AWS: by the actuator's calls, with the errors of feeds."""

import pytest

from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.calling import MOST_PAGES, CallRefused, pages
from spotline.adapters.clouds.aws.calls import EXAMINING, INTERRUPTING, OBSERVING
from spotline.adapters.clouds.aws.errors import AwsRefused, NoAnswer, NotReached
from spotline.adapters.clouds.aws.reader import RETRY_AFTER_S, ApiReader, method_name
from spotline.contracts.errors import ProviderUnavailable, Throttled
from tests.fakes.aws_account import settings

WHERE = ("main", "us-east-1", "ec2")


class Answers:
    """Stands in for `BotoApi`: answers in order, errors among them."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def _next(self, how, place, service, operation, **params):
        self.asked.append((how, place, service, operation, params))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def call(self, *what, **params):
        return await self._next("call", *what, **params)

    async def read(self, *what, **params):
        return await self._next("read", *what, **params)


def reader(*answers):
    made = ApiReader(settings(), OBSERVING)
    made._opened = Answers(*answers)
    return made, made._opened


@pytest.mark.parametrize(
    ("operation", "how"), [("DescribeSubnets", "read"), ("RunInstances", "call")]
)
async def test_only_what_changes_nothing_is_asked_again(operation, how):
    ours, api = reader({"a": 1})

    assert await ours.call(*WHERE, operation, MaxResults=5) == {"a": 1}

    place = AwsPlace("main", "us-east-1")
    assert api.asked == [(how, place, "ec2", method_name(operation), {"MaxResults": 5})]


@pytest.mark.parametrize(("after_s", "told_s"), [(0, RETRY_AFTER_S), (7, 7)])
async def test_asking_too_often_says_when_to_ask_again(after_s, told_s):
    ours, _ = reader(AwsRefused("RequestLimitExceeded", "slow down", retry_after_s=after_s))

    with pytest.raises(Throttled) as throttled:
        await ours.call(*WHERE, "DescribeSubnets")

    assert throttled.value.retry_after_s == told_s


async def test_a_refusal_keeps_its_code_and_words():
    ours, _ = reader(AwsRefused("UnauthorizedOperation", "you may not"))

    with pytest.raises(CallRefused) as refused:
        await ours.call(*WHERE, "DescribeSubnets")

    said = (refused.value.operation, refused.value.code, refused.value.message)
    assert said == ("DescribeSubnets", "UnauthorizedOperation", "you may not")


@pytest.mark.parametrize("error", [NotReached("no route"), NoAnswer("timed out")])
async def test_what_never_came_is_a_provider_that_does_not_answer(error):
    ours, _ = reader(error)

    with pytest.raises(ProviderUnavailable, match=str(error)):
        await ours.call(*WHERE, "DescribeSubnets")


async def test_where_aws_is_unwell_only_reads_are_asked_again(monkeypatch):
    monkeypatch.setattr("spotline.adapters.clouds.aws.reader._WAITS_S", (0.001, 0.001))
    unwell = AwsRefused("InternalError", "unwell", status=500)
    reading, api = reader(unwell, unwell, {"a": 1})
    writing, _ = reader(unwell)
    tired, _ = reader(*[unwell] * 3)

    assert await reading.call(*WHERE, "DescribeSubnets") == {"a": 1}
    assert len(api.asked) == 3
    with pytest.raises(CallRefused):
        await writing.call(*WHERE, "RunInstances")
    with pytest.raises(CallRefused):
        await tired.call(*WHERE, "DescribeSubnets")


async def test_connections_are_opened_by_a_call_and_again_after_a_close(monkeypatch):
    opened, closed = [], []

    class Connections(Answers):
        def __init__(self, stated, calls):
            super().__init__({"a": 1})
            opened.append(calls)

        def close(self):
            closed.append(self)

    monkeypatch.setattr("spotline.adapters.clouds.aws.reader.BotoApi", Connections)
    ours = ApiReader(settings(), OBSERVING)
    ours.close()

    for _ in range(2):
        await ours.call(*WHERE, "DescribeSubnets")
        ours.close()

    assert (len(opened), len(closed)) == (2, 2)
    assert opened[0]["pricing"] == ("get_products",)


async def test_pages_are_followed_to_the_last():
    ours, api = reader({"Rows": [1], "NextToken": "2"}, {"NextToken": "3"}, {"Rows": [2]})

    assert await pages(ours, WHERE, "DescribeSubnets", "Rows", MaxResults=5) == [1, 2]

    assert [asked[-1].get("NextToken") for asked in api.asked] == [None, "2", "3"]


async def test_pages_without_end_are_refused():
    ours, _ = reader(*[{"NextToken": "again"}] * MOST_PAGES)

    with pytest.raises(ProviderUnavailable, match=f"<= {MOST_PAGES} pages"):
        await pages(ours, WHERE, "DescribeSubnets", "Rows")


async def test_no_other_call_is_made_than_those_that_were_named():
    ours = ApiReader(settings(), OBSERVING)
    try:
        with pytest.raises(ValueError, match="operation must be one of"):
            await ours.call(*WHERE, "TerminateInstances", InstanceIds=["i-1"])
    finally:
        ours.close()


def test_all_operations_are_named_as_botocore_names_them():
    from botocore import xform_name
    from botocore.session import get_session

    session = get_session()
    for calls in (OBSERVING, EXAMINING, INTERRUPTING):
        for service, operations in calls.items():
            known = session.get_service_model(service).operation_names
            assert set(operations) <= set(known)
            assert [*map(method_name, operations)] == [*map(xform_name, operations)]
