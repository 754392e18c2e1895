"""Who joins by an identity document: an instance that a job holds, within a day, one agent of it."""

from datetime import UTC, datetime

import grpc
import pytest

from spotline.adapters.agents.identity_documents import DocumentRules, IdentityDocuments
from spotline.adapters.grpc.agent.servicer import AgentServicer
from spotline.adapters.grpc.agent.sessions import DocumentsTaken, Sessions
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.adapters.identity.instances import sha256_of
from spotline.adapters.identity.signing import Signer
from spotline.application.allocator.agent_messages import JoinAsked
from spotline.application.allocator.gang import Gang, Gangs, JoinedAgent
from spotline.contracts.mapping import to_message
from spotline.contracts.reasons import Reason
from spotline.domain.units import NS_PER_S
from tests.fakes.identity_documents import ACCOUNT, REGION, RegionSigner, document
from tests.fakes.training_story import run_job

NOW_S = 1_000_000
AWS = RegionSigner()
JOB = run_job()
DAY_S = 86_400


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    file = tmp_path_factory.mktemp("certificates") / "aws.pem"
    file.write_bytes(AWS.certificate())
    rules = DocumentRules(certificates=file, accounts=(ACCOUNT,), regions=(REGION,))
    return IdentityDocuments(rules)


@pytest.fixture
def gang():
    return Gang(
        job_id=JOB.job_id,
        tenant=JOB.tenant,
        allowed_counts=JOB.allowed_counts,
        run=JOB.run,
        held=("i-1",),
    )


@pytest.fixture
def sessions(documents, gang):
    return Sessions(
        Signer(b"k" * 32),
        lambda: Gangs(by_job={JOB.job_id: gang}),
        now=lambda: datetime.fromtimestamp(NOW_S, tz=UTC),
        taken=DocumentsTaken(documents=documents, age_s=lambda ts_ns: NOW_S - ts_ns / NS_PER_S),
    )


def asked(instance_id="i-1", *, age_s=60, nonce="n" * 32, signer=AWS, shown="", **changes):
    shown = shown or document(instance_id, pending_s=NOW_S - age_s, **changes)
    return JoinAsked(
        instance_id=instance_id,
        nonce=nonce,
        identity_document=shown,
        identity_signature=signer.sign(shown),
    )


def refusal(ask):
    with pytest.raises(RpcRefused) as caught:
        ask()
    return caught.value


def test_an_instance_that_a_job_holds_is_of_that_job(sessions):
    token = sessions.token_of(asked())

    sessions.refuse_expired(token)
    assert (token.identity.instance_id, token.identity.job_id) == ("i-1", JOB.job_id)


def test_a_document_of_more_than_a_day_ago_joins_nobody(sessions):
    sessions.refuse_expired(sessions.token_of(asked(age_s=DAY_S - 1)))
    late = sessions.token_of(asked(age_s=DAY_S + 1))

    assert refusal(lambda: sessions.refuse_expired(late)).code is grpc.StatusCode.PERMISSION_DENIED


def test_an_agent_that_joined_is_known_after_its_instance_is_released(sessions, gang):
    gang.joined["i-1"] = JoinedAgent(
        token_sha256=sha256_of("document"), nonce_sha256=sha256_of("n" * 32), host=""
    )
    gang.held = ()

    assert sessions.token_of(asked(age_s=2 * DAY_S)).identity.job_id == JOB.job_id
    refused = refusal(lambda: sessions.refuse_another(asked(nonce="m" * 32), gang.joined["i-1"]))
    assert (refused.reason.name, refused.field) == ("TOKEN_USED", "identity_document")
    sessions.refuse_another(asked(), gang.joined["i-1"])


def test_an_instance_of_no_job_is_asked_to_wait_at_first_and_then_refused(sessions):
    early = refusal(lambda: sessions.token_of(asked("i-2", age_s=30)))
    late = refusal(lambda: sessions.token_of(asked("i-2", age_s=3_600)))

    assert (early.code.name, early.reason.name) == ("UNAVAILABLE", "NOT_HELD_YET")
    assert (late.code.name, late.reason.name) == ("PERMISSION_DENIED", "DOCUMENT_REFUSED")
    assert str(late) == "identity_document is refused: no job holds its instance"


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (asked(signer=RegionSigner(1)), "it was not signed by AWS"),
        (asked(accountId="000000000002"), "account '000000000002' is none of ours"),
        (asked(shown=document("i-2", pending_s=NOW_S)), "it is of another instance"),
        (asked(age_s=-7_200), "its instance is launched in time to come"),
    ],
)
def test_what_is_not_ours_is_refused_and_the_reason_said(sessions, ask, why):
    refused = refusal(lambda: sessions.token_of(ask))

    assert (refused.code.name, refused.reason.name) == ("PERMISSION_DENIED", "DOCUMENT_REFUSED")
    assert why in str(refused)


def test_a_server_that_was_given_no_certificates_takes_no_documents():
    sessions = Sessions(Signer(b"k" * 32), Gangs)

    assert "clouds.aws.identity_certificates is not set" in str(
        refusal(lambda: sessions.token_of(asked()))
    )


@pytest.mark.parametrize(
    ("shown", "field"),
    [
        ({}, "join_token must not be empty"),
        ({"identity_document": "{}"}, "identity_signature must not be empty"),
        (
            {"identity_document": "{}", "identity_signature": "s", "join_token": "t"},
            "join_token must be empty beside an identity_document",
        ),
    ],
)
def test_either_a_token_or_a_signed_document_is_shown(shown, field):
    with pytest.raises(ValueError, match=field):
        JoinAsked(instance_id="i-1", nonce="n" * 32, **shown)


class Turned(Exception):
    """Turned away."""


class Context:
    """A call that is turned away raises."""

    async def abort(self, code, *_, **__):
        raise Turned(code.name)


class Nobody:
    """A keeper of no gangs."""

    times = None

    def clock(self):
        return None


async def test_who_is_not_let_in_is_counted_by_the_reason(sessions):
    servicer = AgentServicer(None, Nobody(), sessions, None)
    request = to_message(asked(signer=RegionSigner(1)))

    for _ in range(2):
        with pytest.raises(Turned, match="PERMISSION_DENIED"):
            await servicer.Join(request, Context())
    with pytest.raises(Turned, match="UNAVAILABLE"):
        await servicer.Join(to_message(asked("i-2")), Context())

    assert servicer.joins_refused == {Reason.DOCUMENT_REFUSED: 2, Reason.NOT_HELD_YET: 1}
