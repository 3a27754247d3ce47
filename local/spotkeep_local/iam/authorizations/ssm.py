"""The permissions that the operations of the Parameter Store and of Session Manager need.

Sources: "Restricting access to Parameter Store parameters using IAM policies" and "AWS KMS encryption for AWS Systems
Manager Parameter Store SecureString parameters" in the Systems Manager user guide. "Calling AWS service public
parameters", "Start a session with a document by specifying the session documents in IAM policies" there. "Access a
training container through AWS Systems Manager for remote debugging" in the SageMaker developer guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spotkeep_fleet.shells import TRAINING_JOB_TARGET
from spotkeep_local.iam.authorizations.asking import Asked, Asking, Rules, UndecidableError, ask, existing, made

if TYPE_CHECKING:
    from spotkeep_local.iam.authorization import EncryptionKey


def _arn_of(call: Asking, name: str) -> str:
    if name.startswith("arn:"):
        return name
    # A selector of a version or a label is no part of the ARN.
    bare = name.partition(":")[0].removeprefix("/")
    if bare.startswith("aws/service/"):
        return f"arn:aws:ssm:{call.account.region}::parameter/{bare}"
    return call.arn("ssm", f"parameter/{bare}")


def _parameter(call: Asking) -> str:
    return _arn_of(call, str(call.needed("Name")))


def _get_one(call: Asking) -> Asked:
    yield from _get(call, "ssm:GetParameter", _parameter(call))


def _get_several(call: Asking) -> Asked:
    for name in call.needed("Names"):
        yield from _get(call, "ssm:GetParameters", _arn_of(call, str(name)))


def _get(call: Asking, action: str, parameter: str) -> Asked:
    yield ask(action, parameter, resource_tags=call.tags(parameter))
    if call.get("WithDecryption"):
        yield from _use_key(call, call.account.key_of(parameter), "Decrypt", parameter)


def _use_key(call: Asking, key: EncryptionKey | None, action: str, parameter: str) -> Asked:
    context = {"PARAMETER_ARN": parameter}
    yield from call.use_key(key, (action,), via="ssm", encryption_context=context)


def _put(call: Asking) -> Asked:
    parameter, tags = _parameter(call), call.new_tags
    keys = {"ssm:overwrite": call.get("Overwrite"), "ssm:policies": call.get("Policies")}
    yield from made("ssm:PutParameter", parameter, tags, tagging="ssm:AddTagsToResource", keys=keys)
    if call.get("Type") == "SecureString" and (named := call.get("KeyId")) is not None:
        yield from _use_key(call, call.key_named(named), "Encrypt", parameter)


def _start_session(call: Asking) -> Asked:
    target = str(call.needed("Target"))
    if target.startswith("i-"):
        instance = call.arn("ec2", f"instance/{target}")
        yield ask("ssm:StartSession", instance, resource_tags=call.tags(instance), tag_prefixes=("aws", "ssm"))
    elif target.startswith(f"{TRAINING_JOB_TARGET}:"):
        # AWS documents a condition key for these targets, and no resource.
        yield ask("ssm:StartSession", keys={"ssm:resourcetag/aws:ssmmessages:target-id": target})
    else:
        raise UndecidableError(f"{target} is neither an instance nor a container of a training job.")
    if (document := call.get("DocumentName")) is not None:
        # Names that begin with AWS are AWS's own, in no account of a customer's.
        owner = "" if document.startswith("AWS-") else call.account.account_id
        yield ask("ssm:StartSession", f"arn:aws:ssm:{call.account.region}:{owner}:document/{document}")


_RULES: Final[Rules] = {
    "DeleteParameter": existing("ssm:DeleteParameter", _parameter),
    "GetParameter": _get_one,
    "GetParameters": _get_several,
    "PutParameter": _put,
    "StartSession": _start_session,
}
OPERATIONS: Final = {"ssm": _RULES}
