"""What the operations of Secrets Manager ask for.

An ARN of a secret ends in six characters that its name does not have: one that is given by its name is asked for with
question marks in their place, which only a policy with a pattern matches.

Source: "Secret encryption and decryption in AWS Secrets Manager" and "Permissions policy examples" in the Secrets
Manager user guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.authorizations.asking import arn, ask, needed, use_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spotkeep_local.iam.authorization import Authorization
    from spotkeep_local.iam.authorizations.account import AccountView
    from spotkeep_local.iam.authorizations.asking import AuthorizationRule, Parameters


def _get_value(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    named = str(needed(parameters, "SecretId"))
    secret = named if named.startswith("arn:") else arn("secretsmanager", f"secret:{named}-??????", account)
    keys = {
        "secretsmanager:secretid": secret,
        "secretsmanager:versionid": parameters.get("VersionId"),
        "secretsmanager:versionstage": parameters.get("VersionStage", "AWSCURRENT"),
    }
    yield ask("secretsmanager:GetSecretValue", secret, keys=keys, resource_tags=account.tags(secret))
    context = {"SecretARN": secret}
    yield from use_key(
        account.key_of(secret), ("Decrypt",), via="secretsmanager", account=account, encryption_context=context
    )


OPERATIONS: Final[Mapping[str, AuthorizationRule]] = {"GetSecretValue": _get_value}
