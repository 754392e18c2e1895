"""boto3's answers and errors, as feeds and checks see them; nothing is sent in these tests."""

import pytest
from botocore.exceptions import NoCredentialsError, ReadTimeoutError
from botocore.stub import Stubber

from spotline.adapters.clouds.aws.boto_reader import RETRY_AFTER_S, BotoReader
from spotline.adapters.clouds.aws.calling import CallRefused, pages
from spotline.adapters.clouds.aws.settings import AwsAccount, AwsOffering, AwsSettings
from spotline.contracts.errors import ConfigError, ProviderUnavailable, Throttled

WHERE = ("main", "us-east-1", "ec2")


@pytest.fixture(scope="module")
def reader():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        made = BotoReader(
            AwsSettings(
                accounts=(AwsAccount(name="main", account_id="000000000001"),),
                offerings=(
                    AwsOffering(
                        account="main",
                        region="us-east-1",
                        zone="use1-az4",
                        instance_type="g5.xlarge",
                        gpu_model="a10g",
                        gpus_per_instance=1,
                        launch_template_id="lt-1",
                    ),
                ),
                endpoint_url="http://127.0.0.1:9",
            )
        )
        made.client(*WHERE)
        yield made
        made.close()


@pytest.fixture
def stub(reader):
    with Stubber(reader.client(*WHERE)) as stubbed:
        yield stubbed


async def test_pages_are_followed_to_the_last(reader, stub):
    stub.add_response("describe_spot_price_history", {"SpotPriceHistory": [], "NextToken": "2"}, {})
    stub.add_response(
        "describe_spot_price_history",
        {"SpotPriceHistory": [{"SpotPrice": "1"}], "NextToken": ""},
        {"NextToken": "2"},
    )

    rows = await pages(reader, WHERE, "DescribeSpotPriceHistory", "SpotPriceHistory")

    assert rows == [{"SpotPrice": "1"}]
    stub.assert_no_pending_responses()


async def test_a_refusal_has_its_code_and_words(reader, stub):
    stub.add_client_error("describe_subnets", "UnauthorizedOperation", "you may not")

    with pytest.raises(CallRefused) as refused:
        await reader.call(*WHERE, "DescribeSubnets")

    assert (refused.value.code, refused.value.message) == ("UnauthorizedOperation", "you may not")


@pytest.mark.parametrize(
    ("headers", "after_s"), [({}, RETRY_AFTER_S), ({"retry-after": "7.5"}, 7.5)]
)
async def test_asking_too_often_says_when_to_ask_again(reader, stub, headers, after_s):
    stub.add_client_error(
        "describe_subnets", "RequestLimitExceeded", response_meta={"HTTPHeaders": headers}
    )

    with pytest.raises(Throttled) as throttled:
        await reader.call(*WHERE, "DescribeSubnets")

    assert throttled.value.retry_after_s == after_s


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (ReadTimeoutError(endpoint_url="x"), ProviderUnavailable),
        (NoCredentialsError(), ConfigError),
    ],
)
async def test_what_never_came_is_told_apart(reader, monkeypatch, raised, error):
    def fail(**_):
        raise raised

    monkeypatch.setattr(reader.client(*WHERE), "describe_subnets", fail)

    with pytest.raises(error):
        await reader.call(*WHERE, "DescribeSubnets")
