"""`identity.yaml`: who may sign tokens; what is unsafe is refused when the file is read."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.files.mistake import BadFile
from spotline.adapters.identity.issuers import ALGORITHMS, read_issuers
from spotline.adapters.identity.jwt_tokens import JwtTokens
from spotline.application.identity.grants import RoleGrant
from spotline.contracts.access import Role
from spotline.contracts.errors import ConfigError, ContractError
from tests.fakes.signed_tokens import NOW, TokenIssuer

STATED = {
    "issuer": "https://login.example.com/",
    "audience": "spotline",
    "algorithms": ["RS256", "ES256"],
    "jwks_url": "https://login.example.com/keys",
    "refetch": "2m",
    "groups": {"research": {"role": "owner", "tenant": "research"}, "sre": {"role": "operator"}},
}


def read_with(folder, **changes):
    stated = {key: value for key, value in {**STATED, **changes}.items() if value is not None}
    path = folder / "identity.yaml"
    path.write_text(yaml.safe_dump({"issuers": [stated]}, sort_keys=False))
    return read_issuers(path)


def test_what_it_states_is_read(tmp_path):
    (issuer,) = read_with(tmp_path)

    assert (issuer.issuer, issuer.audience) == ("https://login.example.com/", "spotline")
    assert issuer.algorithms == ("RS256", "ES256")
    assert (issuer.refetch_s, issuer.refresh_s, issuer.leeway_s) == (120, 3600, 30)
    assert dict(issuer.groups) == {
        "research": RoleGrant(role=Role.OWNER, tenant="research"),
        "sre": RoleGrant(role=Role.OPERATOR),
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"algorithms": ["none"]}, r"algorithms\[0\]: expected one of .* proves nobody"),
        ({"algorithms": ["NONE"]}, r"algorithms\[0\]: expected one of .* proves nobody"),
        ({"algorithms": ["ES256", "HS256"]}, r"algorithms\[1\]: expected one of .* shared secret"),
        ({"algorithms": ["hs512"]}, r"algorithms\[0\]: expected one of .* shared secret"),
        ({"algorithms": ["RS384"]}, r"algorithms\[0\]: expected one of ES256, RS256, PS256, EdDSA"),
        ({"algorithms": []}, "algorithms: expected at least one entry"),
        ({"algorithms": None}, "algorithms: expected this field"),
        ({"audience": None}, "audience: expected this field"),
        ({"audience": ""}, "audience: expected text that is not empty"),
        ({"issuer": None}, "issuer: expected this field"),
        ({"jwks_url": "http://x/keys"}, "jwks_url: expected a URL that begins with https://"),
        ({"jwks_url": "file:///etc/passwd"}, "jwks_url: expected a URL that begins with https"),
        ({"jwks_url": None}, "jwks_url: expected either this field or jwks_file, found neither"),
        ({"jwks_file": "k.json"}, "jwks_url: expected either .*, found both"),
        ({"leeway": "1h"}, "leeway: expected a number <= 600"),
        ({"refetch": 0}, "refetch: expected a number >= 1"),
        ({"groups": {}}, "groups: expected at least one entry"),
        ({"groups": {"a": {"role": "instance"}}}, r"groups\.a\.role: expected one of owner"),
        (
            {"groups": {"a": {"role": "owner"}}},
            r"groups\.a\.tenant: expected .*a tenant's name for the role",
        ),
        (
            {"groups": {"a": {"role": "service", "tenant": "t"}}},
            r"groups\.a\.tenant: expected .*empty for the role service",
        ),
        ({"grops": {}}, "grops: expected a known field .did you mean groups"),
    ],
)
def test_what_is_unsafe_or_wrong_is_refused_by_its_field(tmp_path, changes, said):
    with pytest.raises(BadFile, match=said):
        read_with(tmp_path, **changes)


def test_an_issuer_comes_once_for_an_audience(tmp_path):
    path = tmp_path / "identity.yaml"
    path.write_text(yaml.safe_dump({"issuers": [STATED, {**STATED, "audience": "b"}, STATED]}))

    with pytest.raises(BadFile, match=r"issuers\[2\]: expected each issuer once"):
        read_issuers(path)


async def test_keys_may_be_in_a_file_beside_it(tmp_path):
    issuer = TokenIssuer()
    (tmp_path / "keys.json").write_bytes(issuer.jwks())
    read_with(tmp_path, jwks_url=None, jwks_file="keys.json")

    tokens = JwtTokens.of_file(tmp_path / "identity.yaml", now=lambda: NOW)

    assert (await tokens.read(issuer.sign())).caller.tenant == "research"
    for content in ("", "{}", json.dumps({"keys": [{"kty": "oct", "k": "AA"}]})):
        (tmp_path / "keys.json").write_text(content)
        with pytest.raises(ConfigError, match=r"keys\.json: expected a JWKS|expected a JWKS"):
            JwtTokens.of_file(tmp_path / "identity.yaml")


@given(
    algorithms=st.lists(
        st.one_of(
            st.sampled_from([*ALGORITHMS, "none", "HS256", "RS512", ""]), st.text(max_size=9)
        ),
        max_size=4,
    )
)
def test_no_file_lets_in_an_algorithm_that_is_not_on_the_list(tmp_path_factory, algorithms):
    folder = tmp_path_factory.mktemp("issuers")
    try:
        (issuer,) = read_with(folder, algorithms=algorithms)
    except ContractError:
        assert not algorithms or set(algorithms) - set(ALGORITHMS)
    else:
        assert set(issuer.algorithms) == set(algorithms) <= set(ALGORITHMS)
