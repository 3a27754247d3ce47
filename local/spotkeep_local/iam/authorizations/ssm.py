"""What the operations of the Parameter Store and of Session Manager ask for.

Sources: "Restricting access to Parameter Store parameters using IAM policies" and "AWS KMS encryption for AWS Systems
Manager Parameter Store SecureString parameters" in the Systems Manager user guide; "Calling AWS service public
parameters", "Start a session with a document by specifying the session documents in IAM policies" there; "Access a
training container through AWS Systems Manager for remote debugging" in the SageMaker developer guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spotkeep_fleet.shells import TRAINING_JOB_TARGET
from spotkeep_local.iam.authorizations.account import EncryptionKey
from spotkeep_local.iam.authorizations.asking import UndecidableError, arn, ask, needed, tags_of, use_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spotkeep_local.iam.authorization import Authorization
    from spotkeep_local.iam.authorizations.account import AccountView
    from spotkeep_local.iam.authorizations.asking import AuthorizationRule, Parameters


def _parameter(name: str, account: AccountView) -> str:
    if name.startswith("arn:"):
        return name
    # A selector of a version or a label is no part of the ARN.
    bare = name.partition(":")[0].removeprefix("/")
    if bare.startswith("aws/service/"):
        return f"arn:aws:ssm:{account.region}::parameter/{bare}"
    return arn("ssm", f"parameter/{bare}", account)


def _decrypt(parameter: str, account: AccountView) -> tuple[Authorization, ...]:
    context = {"PARAMETER_ARN": parameter}
    return use_key(account.key_of(parameter), ("Decrypt",), via="ssm", account=account, encryption_context=context)


def _get_one(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    parameter = _parameter(str(needed(parameters, "Name")), account)
    yield ask("ssm:GetParameter", parameter, resource_tags=account.tags(parameter))
    if parameters.get("WithDecryption"):
        yield from _decrypt(parameter, account)


def _get_several(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    for name in needed(parameters, "Names"):
        parameter = _parameter(str(name), account)
        yield ask("ssm:GetParameters", parameter, resource_tags=account.tags(parameter))
        if parameters.get("WithDecryption"):
            yield from _decrypt(parameter, account)


def _put(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    parameter, tags = _parameter(str(needed(parameters, "Name")), account), tags_of(parameters.get("Tags"))
    keys = {"ssm:overwrite": parameters.get("Overwrite"), "ssm:policies": parameters.get("Policies")}
    yield ask("ssm:PutParameter", parameter, keys=keys, request_tags=tags)
    if tags:
        yield ask("ssm:AddTagsToResource", parameter, request_tags=tags)
    if parameters.get("Type") == "SecureString" and (named := parameters.get("KeyId")) is not None:
        if (key := account.key_arn(str(named))) is None:
            raise UndecidableError(f"There is no key {named}.")
        yield from use_key(
            EncryptionKey(arn=key),
            ("Encrypt",),
            via="ssm",
            account=account,
            encryption_context={"PARAMETER_ARN": parameter},
        )


def _delete(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    parameter = _parameter(str(needed(parameters, "Name")), account)
    yield ask("ssm:DeleteParameter", parameter, resource_tags=account.tags(parameter))


def _start_session(parameters: Parameters, account: AccountView) -> Iterator[Authorization]:
    target = str(needed(parameters, "Target"))
    if target.startswith("i-"):
        instance = arn("ec2", f"instance/{target}", account)
        yield ask("ssm:StartSession", instance, resource_tags=account.tags(instance), tag_prefixes=("aws", "ssm"))
    elif target.startswith(f"{TRAINING_JOB_TARGET}:"):
        # AWS documents a condition key for these targets, and no resource.
        yield ask("ssm:StartSession", keys={"ssm:resourcetag/aws:ssmmessages:target-id": target})
    else:
        raise UndecidableError(f"{target} is neither an instance nor a container of a training job.")
    if (document := parameters.get("DocumentName")) is not None:
        # Names that begin with AWS are AWS's own, in no account of a customer's.
        owner = "" if document.startswith("AWS-") else account.account_id
        yield ask("ssm:StartSession", f"arn:aws:ssm:{account.region}:{owner}:document/{document}")


OPERATIONS: Final[Mapping[str, AuthorizationRule]] = {
    "DeleteParameter": _delete,
    "GetParameter": _get_one,
    "GetParameters": _get_several,
    "PutParameter": _put,
    "StartSession": _start_session,
}
