"""What the operations of the Parameter Store and of Session Manager ask for.

Sources: "Restricting access to Parameter Store parameters using IAM policies" and "AWS KMS encryption for AWS Systems
Manager Parameter Store SecureString parameters" in the Systems Manager user guide; "Calling AWS service public
parameters", "Start a session with a document by specifying the session documents in IAM policies" there; "Access a
training container through AWS Systems Manager for remote debugging" in the SageMaker developer guide.
"""

from __future__ import annotations

from typing import Final

from spotkeep_fleet.shells import TRAINING_JOB_TARGET
from spotkeep_local.iam.authorizations.asking import (
    AccountView,
    Asked,
    EncryptionKey,
    Parameters,
    Rules,
    UndecidableError,
    arn,
    ask,
    existing,
    key_named,
    made,
    needed,
    tags_of,
    use_key,
)


def _arn_of(name: str, account: AccountView) -> str:
    if name.startswith("arn:"):
        return name
    # A selector of a version or a label is no part of the ARN.
    bare = name.partition(":")[0].removeprefix("/")
    if bare.startswith("aws/service/"):
        return f"arn:aws:ssm:{account.region}::parameter/{bare}"
    return arn("ssm", f"parameter/{bare}", account)


def _parameter(parameters: Parameters, account: AccountView) -> str:
    return _arn_of(str(needed(parameters, "Name")), account)


def _get_one(parameters: Parameters, account: AccountView) -> Asked:
    yield from _get("ssm:GetParameter", _parameter(parameters, account), parameters, account)


def _get_several(parameters: Parameters, account: AccountView) -> Asked:
    for name in needed(parameters, "Names"):
        yield from _get("ssm:GetParameters", _arn_of(str(name), account), parameters, account)


def _get(action: str, parameter: str, parameters: Parameters, account: AccountView) -> Asked:
    yield ask(action, parameter, resource_tags=account.tags(parameter))
    if parameters.get("WithDecryption"):
        yield from _use_key(account.key_of(parameter), "Decrypt", parameter, account)


def _use_key(key: EncryptionKey | None, action: str, parameter: str, account: AccountView) -> Asked:
    context = {"PARAMETER_ARN": parameter}
    yield from use_key(key, (action,), via="ssm", account=account, encryption_context=context)


def _put(parameters: Parameters, account: AccountView) -> Asked:
    parameter, tags = _parameter(parameters, account), tags_of(parameters.get("Tags"))
    keys = {"ssm:overwrite": parameters.get("Overwrite"), "ssm:policies": parameters.get("Policies")}
    yield from made("ssm:PutParameter", parameter, tags, tagging="ssm:AddTagsToResource", keys=keys)
    if parameters.get("Type") == "SecureString" and (named := parameters.get("KeyId")) is not None:
        yield from _use_key(key_named(named, account), "Encrypt", parameter, account)


def _start_session(parameters: Parameters, account: AccountView) -> Asked:
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


_RULES: Final[Rules] = {
    "DeleteParameter": existing("ssm:DeleteParameter", _parameter),
    "GetParameter": _get_one,
    "GetParameters": _get_several,
    "PutParameter": _put,
    "StartSession": _start_session,
}
OPERATIONS: Final = {"ssm": _RULES}
