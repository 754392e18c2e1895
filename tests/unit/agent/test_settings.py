from pathlib import Path

import pytest

from spotline.agent.settings import own_address, read_settings
from spotline.contracts.errors import ConfigError

PEM = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"
NEEDED = {
    "SPOTLINE_CONTROL": "127.0.0.1:7443",
    "SPOTLINE_CONTROL_CA": PEM,
    "SPOTLINE_INSTANCE_ID": "i-1",
    "SPOTLINE_JOB_ID": "job-1",
    "SPOTLINE_JOIN_TOKEN": "let-me-in",
}


def test_what_is_needed_suffices():
    settings = read_settings(NEEDED)

    assert settings.control == "127.0.0.1:7443"
    assert settings.control_ca == PEM.encode()
    assert settings.host == "127.0.0.1"
    assert settings.base_dir == Path.cwd() / "spotline-i-1"
    assert settings.metadata_dir is None
    assert "let-me-in" not in repr(settings)


def test_folders_follow_from_the_clouds(tmp_path):
    ca = tmp_path / "ca.pem"
    ca.write_text(PEM)
    settings = read_settings(
        {
            **NEEDED,
            "SPOTLINE_CONTROL_CA": str(ca),
            "SPOTLINE_METADATA_DIR": str(tmp_path),
            "SPOTLINE_HOST": "10.1.2.3",
        }
    )

    assert settings.control_ca == PEM.encode()
    assert settings.run_dir == tmp_path / "agent" / "run"
    assert settings.host == "10.1.2.3"


def test_all_missing_variables_are_named():
    with pytest.raises(ConfigError, match=r"^SPOTLINE_CONTROL_CA, SPOTLINE_JOIN_TOKEN must be set"):
        read_settings({**NEEDED, "SPOTLINE_CONTROL_CA": "", "SPOTLINE_JOIN_TOKEN": " "})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("SPOTLINE_CONTROL", "host", "SPOTLINE_CONTROL must be HOST:PORT, was 'host'"),
        ("SPOTLINE_CONTROL", "host:70000", "must be HOST:PORT"),
        ("SPOTLINE_CONTROL", ":7443", "must be HOST:PORT"),
        ("SPOTLINE_CONTROL_CA", "/nowhere.pem", "SPOTLINE_CONTROL_CA must be a certificate in PEM"),
        ("SPOTLINE_CONTROL_CA", "/dev/null", "must be PEM; /dev/null holds something else"),
        ("SPOTLINE_INSTANCE_ID", "../x", "must be an instance's id"),
    ],
)
def test_a_wrong_variable_is_named(name, value, message):
    with pytest.raises(ConfigError, match=message):
        read_settings({**NEEDED, name: value})


def test_a_name_that_only_a_proxy_resolves_leaves_the_host_open():
    assert own_address("x" * 70, 1) == ""
