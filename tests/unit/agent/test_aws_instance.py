"""What an instance of EC2 learns of itself, and what it makes of it."""

import base64

import pytest

from spotline.agent.aws_instance import CONTROL_TAG, given, read_instance
from spotline.agent.settings import read_settings
from spotline.contracts.errors import ConfigError, ContractError
from tests.fakes.identity_documents import REGION, document

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
PACKED = base64.b64encode(PEM.encode()).decode()
USER_DATA = f"""#!/bin/sh
export SPOTLINE_CONTROL="control.example:7443"  # where we dial
SPOTLINE_CONTROL_CA={PACKED}
spotline agent --aws
"""


class Shown:
    """The metadata service, as a table."""

    def __init__(self, **texts):
        self.texts = {
            "/latest/dynamic/instance-identity/document": document("i-0abc"),
            "/latest/dynamic/instance-identity/signature": "c2ln",
            "/latest/user-data": USER_DATA,
            **{name.replace("__", "/"): text for name, text in texts.items()},
        }

    def get(self, path):
        return self.texts.get(path)


def settings_of(shown, environ):
    instance = read_instance(shown)
    return read_settings(
        instance.environment(environ), document=instance.document, signature=instance.signature
    )


def test_an_instance_needs_no_more_than_its_user_data_to_dial(tmp_path):
    settings = settings_of(Shown(), {"SPOTLINE_WORK_DIR": str(tmp_path)})

    assert settings.control == "control.example:7443"
    assert settings.control_ca == PEM.encode()
    assert (settings.instance_id, settings.job_id, settings.join_token) == ("i-0abc", "", "")
    assert settings.identity_document == document("i-0abc")
    assert settings.identity_signature == "c2ln"
    assert settings.cloud_kind == "aws"
    assert "c2ln" not in repr(settings)


def test_a_tag_says_where_to_dial_where_user_data_does_not():
    shown = Shown()
    shown.texts["/latest/user-data"] = f"SPOTLINE_CONTROL_CA={PACKED}"
    shown.texts[f"/latest/meta-data/tags/instance/{CONTROL_TAG}"] = "tagged.example:1\n"

    assert read_instance(shown).variables["SPOTLINE_CONTROL"] == "tagged.example:1"


def test_the_environment_comes_before_what_the_instance_was_given():
    instance = read_instance(Shown())

    said = instance.environment({"SPOTLINE_CONTROL": "mine:1", "SPOTLINE_INSTANCE_ID": "i-other"})

    # But who it is, nobody else says.
    assert (said["SPOTLINE_CONTROL"], said["SPOTLINE_INSTANCE_ID"]) == ("mine:1", "i-0abc")


def test_a_token_and_a_job_are_needed_without_a_document_only():
    with pytest.raises(ConfigError, match="SPOTLINE_CONTROL_CA must be set"):
        read_settings({"SPOTLINE_CONTROL": "a:1", "SPOTLINE_INSTANCE_ID": "i"}, document="{}")
    with pytest.raises(ConfigError, match="SPOTLINE_JOB_ID, SPOTLINE_JOIN_TOKEN must be set"):
        read_settings(
            {"SPOTLINE_CONTROL": "a:1", "SPOTLINE_CONTROL_CA": PEM, "SPOTLINE_INSTANCE_ID": "i"}
        )


@pytest.mark.parametrize("document", [None, "", "no json", "[]", '{"instanceId": "i"}'])
def test_what_is_no_document_is_an_error_that_says_so(document):
    shown = Shown()
    shown.texts["/latest/dynamic/instance-identity/document"] = document

    with pytest.raises(ContractError, match="instance-identity/document"):
        read_instance(shown)


def test_user_data_may_be_any_script_or_none():
    assert given("") == {}
    assert given("#cloud-config\nruncmd:\n - SPOTLINE_CONTROL=a:1\n") == {"SPOTLINE_CONTROL": "a:1"}
    assert given("SPOTLINE_CONTROL_CA=/etc/ca.pem") == {"SPOTLINE_CONTROL_CA": "/etc/ca.pem"}
    with pytest.raises(ContractError, match="user data: SPOTLINE_CONTROL"):
        given("SPOTLINE_CONTROL='a:1")


def test_the_region_is_the_documents():
    assert read_instance(Shown()).region == REGION
