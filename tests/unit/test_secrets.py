"""No secret leaves in a report: by name, by value, by option."""

import json

import pytest

from rankdeck.rules.secrets import MASK, Secrets

SECRETS = Secrets([{"HF_TOKEN": "hf_abcdef123", "LEVEL": "debug", "DB_PASSWORD": "s3cret!"}])


@pytest.mark.parametrize(
    "text",
    [
        "train.py --hub-token hf_abcdef123",
        "login with s3cret! at once",
        "api_key=zzzz9999",
        "password: zzzz9999",
        "curl --token=zzzz9999 url",
        "export AWS_SECRET_ACCESS_KEY=zzzz9999",
    ],
)
def test_a_secret_is_gone_from_a_text(text: str) -> None:
    shown = SECRETS.in_text(text)

    assert MASK in shown
    assert not any(value in shown for value in ("hf_abcdef123", "s3cret!", "zzzz9999"))


@pytest.mark.parametrize(
    "text", ["step 3 loss 2.1 11,800 tok/s", "tokens: 3", "the level is debug"]
)
def test_what_is_no_secret_stays_in_output(text: str) -> None:
    assert SECRETS.in_bytes(text.encode()) == text.encode()


def test_values_go_from_output_wherever_they_stand() -> None:
    assert SECRETS.in_bytes(b"x hf_abcdef123\xff s3cret!") == b"x ********\xff ********"


def test_a_tree_is_masked_by_key_and_by_the_option_before() -> None:
    tree = {
        "env": {"SSH_KEY": "abc", "PATH": "/bin", "n": 4},
        "argv": ["run", "--password", "abc", "--steps", "4", "hf_abcdef123"],
    }

    assert SECRETS.in_tree(tree) == {
        "env": {"SSH_KEY": MASK, "PATH": "/bin", "n": 4},
        "argv": ["run", "--password", MASK, "--steps", "4", MASK],
    }
    json.dumps(SECRETS.in_tree(tree))
