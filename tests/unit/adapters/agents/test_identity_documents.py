"""An identity document counts where AWS signed it for an account and a region of ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.agents.identity_documents import DocumentRules, IdentityDocuments
from spotline.adapters.identity.signing import ForgedStatement
from spotline.contracts.errors import ConfigError
from spotline.domain.units import NS_PER_S
from tests.fakes.identity_documents import ACCOUNT, REGION, RegionSigner, document

AWS = RegionSigner()


def rules(folder, **changes):
    (folder / f"{REGION}.pem").write_bytes(AWS.certificate())
    said = {"certificates": folder, "accounts": (ACCOUNT,), "regions": (REGION,)}
    return DocumentRules(**(said | changes))


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return IdentityDocuments(rules(tmp_path_factory.mktemp("certificates")))


def test_what_aws_signed_says_which_instance_it_is_and_since_when(documents):
    shown = document("i-0abc", pending_s=1_000)

    said = documents.read(shown, AWS.sign(shown))

    assert (said.instance_id, said.account_id, said.region) == ("i-0abc", ACCOUNT, REGION)
    assert said.pending_ns == 1_000 * NS_PER_S


@given(st.data())
def test_what_was_changed_anywhere_is_not_what_was_signed(documents, data):
    shown = document()
    place = data.draw(st.integers(0, len(shown) - 1))
    other = data.draw(
        st.characters(min_codepoint=32, max_codepoint=126).filter(lambda c: c != shown[place])
    )

    with pytest.raises(ForgedStatement):
        documents.read(shown[:place] + other + shown[place + 1 :], AWS.sign(shown))


@given(st.text(max_size=200), st.text(max_size=80))
def test_whatever_is_shown_instead_is_refused_and_ends_nothing(documents, shown, signature):
    with pytest.raises(ForgedStatement):
        documents.read(shown, signature)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"accountId": "000000000002"}, "account '000000000002' is none of ours"),
        ({"region": "eu-west-1"}, "region 'eu-west-1' is none of ours"),
        ({"instanceId": None}, "instanceId is missing"),
        ({"pendingTime": "yesterday"}, "pendingTime is no time"),
    ],
)
def test_what_aws_signed_of_others_is_refused(documents, changes, why):
    shown = document(**changes)

    with pytest.raises(ForgedStatement, match=why):
        documents.read(shown, AWS.sign(shown))


@pytest.mark.parametrize("signature", ["", "AAAA", "no base64!", RegionSigner(1).sign(document())])
def test_what_another_signed_is_refused(documents, signature):
    with pytest.raises(ForgedStatement, match="not signed by AWS for region us-east-1"):
        documents.read(document(), signature)


def test_each_of_the_certificates_of_a_region_counts(tmp_path):
    file = tmp_path / "both.pem"
    file.write_bytes(RegionSigner(1).certificate() + AWS.certificate())
    documents = IdentityDocuments(rules(tmp_path, certificates=file))

    for signer in (AWS, RegionSigner(1)):
        assert documents.read(document(), signer.sign(document())).instance_id == "i-1"


def test_a_region_without_a_certificate_is_refused_at_the_start(tmp_path):
    with pytest.raises(ConfigError, match=r"eu-west-1\.pem: expected the certificate that AWS"):
        IdentityDocuments(rules(tmp_path, regions=(REGION, "eu-west-1")))
