"""What the operations of KMS ask for, where a caller uses a key itself and not through another service.

Source: "AWS KMS permissions" and "Condition keys for AWS KMS" in the KMS developer guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.authorizations.asking import UndecidableError, ask, needed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spotkeep_local.iam.authorization import Authorization
    from spotkeep_local.iam.authorizations.account import AccountView
    from spotkeep_local.iam.authorizations.asking import AuthorizationRule, Parameters


def _on_key(action: str) -> AuthorizationRule:
    """Return the rule of an operation that names its key. KMS reads it from ciphertexts, too; nothing here does."""

    def rule(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
        named = str(needed(parameters, "KeyId"))
        if (key := account.key_arn(named)) is None:
            raise UndecidableError(f"There is no key {named}.")
        alias = named.rpartition(":")[2]
        context = parameters.get("EncryptionContext") or {}
        keys = {
            "kms:calleraccount": account.account_id,
            "kms:requestalias": alias if alias.startswith("alias/") else None,
            **{f"kms:encryptioncontext:{name}": value for name, value in context.items()},
        }
        sets = {"kms:encryptioncontextkeys": context}
        yield ask(f"kms:{action}", key, keys=keys, sets=sets, resource_tags=account.tags(key))

    return rule


OPERATIONS: Final[Mapping[str, AuthorizationRule]] = {
    action: _on_key(action)
    for action in ("Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "GenerateDataKeyWithoutPlaintext")
}
