"""Keys as NATS writes them."""

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.nats.nkeys import PUBLIC_CHARS, SEED_BYTES, UserKey, check_public

# https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_intro/nkey_auth
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
PUBLIC = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
SEEDS = st.binary(min_size=SEED_BYTES, max_size=SEED_BYTES)


def test_the_example_of_the_documentation_is_read_and_written():
    key = UserKey.from_seed(f"{SEED}\n")
    assert (key.seed, key.public) == (SEED, PUBLIC)
    assert check_public(PUBLIC) == PUBLIC


@given(SEEDS, st.binary(max_size=64))
def test_a_seed_that_is_written_is_read_again_and_signs_alike(raw, nonce):
    key = UserKey(raw)
    again = UserKey.from_seed(key.seed)
    assert key.seed.startswith("SU")
    assert key.public.startswith("U")
    assert len(key.public) == PUBLIC_CHARS
    assert (again.seed, again.public) == (key.seed, key.public)
    assert again.sign(nonce) == key.sign(nonce)


@given(
    SEEDS,
    st.integers(min_value=0, max_value=57),
    st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"),
)
def test_a_mistyped_seed_is_refused(raw, place, letter):
    seed = UserKey(raw).seed
    mistyped = seed[:place] + letter + seed[place + 1 :]
    if mistyped != seed:
        with pytest.raises(ValueError, match="seed must"):
            UserKey.from_seed(mistyped)


@pytest.mark.parametrize(
    "text", ["", "SU", "not a seed", PUBLIC, SEED[:-1], SEED.lower(), "S" * 58, "é" * 58]
)
def test_what_is_no_seed_is_refused_and_not_repeated(text):
    with pytest.raises(ValueError, match="seed must") as raised:
        UserKey.from_seed(text)
    assert not text or text not in str(raised.value)


@pytest.mark.parametrize("text", ["", SEED, PUBLIC[:-1], PUBLIC.lower(), "A" + PUBLIC[1:]])
def test_what_is_no_public_key_is_refused(text):
    with pytest.raises(ValueError, match="public key must"):
        check_public(text)


def test_two_that_are_drawn_differ_and_one_does_not_sign_for_the_other():
    first, second = UserKey.drawn(), UserKey.drawn()
    assert first.seed != second.seed
    raw = second._key.public_key().public_bytes_raw()
    with pytest.raises(InvalidSignature):
        Ed25519PublicKey.from_public_bytes(raw).verify(first.sign(b"nonce"), b"nonce")


def test_a_raw_seed_of_another_length_is_refused():
    with pytest.raises(ValueError, match="32 bytes, has 31"):
        UserKey(bytes(31))
