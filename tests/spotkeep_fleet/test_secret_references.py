"""References to secrets are names or whole ARNs, and their values are in AWS's answer or in none."""

from __future__ import annotations

import json

import pytest

from spotkeep_fleet.errors import SecretError
from spotkeep_fleet.secret_references import SecretReference, read_reference, refusal, secret_values, without_values

ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:team/hf-Ab12Cd"


@pytest.mark.parametrize(
    ("text", "secret", "key", "name", "region"),
    [
        ("hf", "hf", None, "hf", None),
        ("team/hf:token::", "team/hf", "token", "team/hf", None),
        (ARN, ARN, None, "team/hf", "eu-west-1"),
        (f"{ARN}:token::", ARN, "token", "team/hf", "eu-west-1"),
    ],
)
def test_a_name_or_an_arn_with_or_without_a_key(text, secret, key, name, region):
    found = read_reference(text)
    assert found == SecretReference(secret, key)
    assert (found.name, found.region) == (name, region)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "two words",
        "hf:token",
        "hf:token:AWSCURRENT:",
        "hf:::",
        ARN.rpartition("-")[0],
        "arn:aws:ssm:eu-west-1:123456789012:parameter/hf",
        f"{ARN}:token:",
        f"{ARN}:a\nb::",
        513 * "n",
    ],
)
def test_anything_else_is_none(text):
    assert read_reference(text) is None


def test_each_secret_is_asked_for_once():
    asked = []

    def ask(secret):
        asked.append(secret)
        return {"SecretString": json.dumps({"a": "one", "b": 2})}

    references = ["keys:a::", "keys:b::", "keys"]
    assert secret_values(references, ask) == {"keys:a::": "one", "keys:b::": "2", "keys": '{"a": "one", "b": 2}'}
    assert asked == ["keys"]


@pytest.mark.parametrize(
    ("answer", "reference", "said"),
    [
        ({"SecretBinary": "hidden-value"}, "hf", "holds binary data"),
        ({"SecretString": ""}, "hf", "holds no character"),
        ({"SecretString": "hidden-value\0"}, "hf", "holds a NUL character"),
        ({"SecretString": "hidden-value"}, "hf:token::", "holds no JSON object"),
        ({"SecretString": '["hidden-value"]'}, "hf:token::", "holds no JSON object"),
        ({"SecretString": '{"other": "hidden-value"}'}, "hf:token::", "no text or number with the key token"),
        ({"SecretString": '{"token": ["hidden-value"]}'}, "hf:token::", "no text or number with the key token"),
        ({"SecretString": '{"token": true, "a": "hidden-value"}'}, "hf:token::", "no text or number with the key"),
    ],
)
def test_a_value_that_no_variable_can_hold_is_refused_by_the_secrets_name(answer, reference, said):
    with pytest.raises(SecretError, match=said) as refused:
        secret_values([reference], lambda _secret: answer)
    assert "the secret hf" in str(refused.value) or "the JSON object in the secret hf" in str(refused.value)
    assert "hidden-value" not in str(refused.value)


def test_a_refusal_names_the_secret_and_what_to_do():
    said = str(refusal("hf", code="AccessDeniedException", message="not authorized."))
    assert said.startswith("the secret hf cannot be read: AccessDeniedException: not authorized. Name it in the ")
    assert str(refusal("hf", code="Other", message="why")) == "the secret hf cannot be read: Other: why"


def test_values_are_masked_whole_and_by_their_long_lines():
    pem = "-----BEGIN KEY-----\nc2VjcmV0LXNlY3JldC1zZWNyZXQ=\n-----END KEY-----\n"
    text = f"token=hf_1234 and c2VjcmV0LXNlY3JldC1zZWNyZXQ= and {pem}; an abc stays"
    masked = without_values(text, ["hf_1234", pem, "abc", "hf_1234\n"])
    assert masked == "token=*** and *** and ***; an abc stays"
