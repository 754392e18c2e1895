import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.agent.secrets import MASK, Masker, SecretsMissing, resolve_secrets


def test_a_file_goes_before_a_variable_and_loses_its_line_break(tmp_path):
    (tmp_path / "A").write_text("from-file\n")
    environ = {"SPOTLINE_SECRET_A": "from-variable", "SPOTLINE_SECRET_B": "b\n", "C": "no"}

    assert resolve_secrets(("A", "B"), tmp_path, environ) == {"A": "from-file", "B": "b\n"}


def test_all_missing_secrets_are_named():
    with pytest.raises(SecretsMissing, match=r"run\.secrets A, C: expected as variables"):
        resolve_secrets(("A", "B", "C"), None, {"SPOTLINE_SECRET_B": "b"})


def test_an_unreadable_secret_is_named(tmp_path):
    (tmp_path / "A").write_bytes(b"\xff\xfe")

    with pytest.raises(SecretsMissing, match=r"run\.secrets A: cannot be read"):
        resolve_secrets(("A",), tmp_path, {})


def shown(masker: Masker, *chunks: bytes) -> bytes:
    return b"".join(masker.feed(chunk) for chunk in chunks) + masker.close()


def test_a_secret_is_masked_wherever_chunks_end():
    text = b"a hunter2 b hunter2hunter2 hunter"
    for first in range(len(text)):
        for second in range(first, len(text)):
            chunks = (text[:first], text[first:second], text[second:])
            assert shown(Masker(["hunter2"]), *chunks) == b"a *** b ****** hunter"


def test_what_cannot_be_a_secret_is_shown_at_once():
    masker = Masker(["hunter2"])

    assert masker.feed(b"loss 2.0 hun") == b"loss 2.0 "
    assert masker.feed(b"dred\n") == b"hundred\n"


def test_the_longest_of_several_secrets_is_masked():
    assert shown(Masker(["abc", "abcdef"]), b"x abcd", b"ef abc y") == b"x *** *** y"


def test_long_lines_of_a_secret_are_masked_alone():
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nab\n"

    assert Masker([key]).mask("MIIEvQIBADANBg, ab") == "***, ab"


def test_an_empty_secret_masks_nothing():
    assert shown(Masker([""]), b"text") == b"text"


@given(
    secrets=st.lists(st.text("ab", min_size=2, max_size=5), max_size=3),
    chunks=st.lists(st.text("abc", max_size=6), max_size=8),
)
def test_no_secret_is_ever_shown_and_chunks_make_no_difference(secrets, chunks):
    encoded = [chunk.encode() for chunk in chunks]

    found = shown(Masker(secrets), *encoded)

    assert not any(secret.encode() in found for secret in secrets)
    assert found == shown(Masker(secrets), b"".join(encoded))
    assert MASK not in found or secrets
