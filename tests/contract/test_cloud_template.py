"""The template of docs/clouds keeps what every cloud promises its port: who copies it begins there."""

import inspect
import re
from pathlib import Path

import pytest

from docs.clouds.template.errors import _CLASSES
from docs.clouds.template.rig import AcmeRig
from docs.clouds.template.settings import AcmeSettings
from spotline.bootstrap.cloud_settings import variables_of
from spotline.domain.events.capacity import RefusalClass
from tests.contract import test_cloud_contract as contract

ROOT = Path(__file__).parents[2]
PROMISES = {
    name: promise
    for name, promise in inspect.getmembers(contract, inspect.iscoroutinefunction)
    if name.startswith("test_") and list(inspect.signature(promise).parameters) == ["rig"]
}


@pytest.fixture
def rig(tmp_path):
    made = AcmeRig(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("name", sorted(PROMISES))
async def test_it_keeps_a_promise(rig, name):
    await PROMISES[name](rig)


@pytest.mark.parametrize("refusal_class", sorted(set(RefusalClass) - contract.OURS, key=str))
async def test_it_refuses_as_every_cloud_does(rig, refusal_class):
    await contract.test_a_refusal_is_a_value_with_its_class_and_the_words_of_the_cloud(
        rig, refusal_class
    )


def test_it_does_every_verb_or_says_why_not(rig):
    contract.test_a_rig_does_every_verb_or_says_why_not(rig)


def test_every_class_of_refusal_has_a_code():
    assert set(_CLASSES.values()) == set(RefusalClass) - contract.OURS


def test_its_settings_are_variables_and_its_secret_is_in_no_manifest():
    assert variables_of("acme", AcmeSettings)["url"] == "SPOTLINE_CLOUD_ACME_URL"
    assert "hush" not in repr(AcmeSettings(api_key="hush"))


@pytest.mark.parametrize(
    ("field", "value"), [("url", "http://x"), ("notice_lead_s", -1), ("look_s", 0)]
)
def test_its_settings_name_what_is_wrong(field, value):
    with pytest.raises(ValueError, match=field):
        AcmeSettings(**{field: value})


def test_the_page_names_every_file_of_the_template():
    page = (ROOT / "docs/clouds/adding.md").read_text()

    files = {path.name for path in (ROOT / "docs/clouds/template").glob("*.py")}
    assert files <= set(re.findall(r"`(?:template/)?(\w+\.py)`", page))
