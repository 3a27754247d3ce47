"""What the operations of Lambda ask for.

Who asks a function by its URL needs two permissions: to invoke the URL, and to invoke the function through it.

Source: "Control access to Lambda function URLs" in the Lambda developer guide; "Resources and conditions for Lambda
actions" there for versions and aliases; "CreateFunction" in its API reference, whose code S3 gives to the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.authorizations.asking import (
    AccountView,
    Asked,
    AuthorizationRule,
    Parameters,
    Rules,
    UndecidableError,
    always,
    arn,
    arn_in,
    ask,
    existing,
    needed,
    pass_role,
    tags_of,
)
from spotkeep_local.iam.calls import INVOKE_BY_URL

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARTS_OF_A_PARTIAL_ARN: Final = 3


def _function(parameters: Parameters, account: AccountView) -> str:
    """Return the ARN of a function that is named, as AWS allows, by name, ARN or partial ARN; with its qualifier."""
    named = str(needed(parameters, "FunctionName"))
    if named.startswith("arn:"):
        found = named
    else:
        parts = named.split(":")
        if len(parts) >= _PARTS_OF_A_PARTIAL_ARN and parts[1] == "function":
            if parts[0] != account.account_id:
                raise UndecidableError(f"{named} is of another account.")
            parts = parts[2:]
        found = arn("lambda", "function:" + ":".join(parts), account)
    qualifier = parameters.get("Qualifier")
    return found if qualifier is None else f"{found}:{qualifier}"


def _tags(function: str, account: AccountView) -> Mapping[str, str]:
    # Tags are the function's, not those of a version or an alias.
    return account.tags(":".join(function.split(":")[:7]))


def _on_function(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Asked:
        function = _function(parameters, account)
        yield ask(f"lambda:{action}", function, resource_tags=_tags(function, account))

    return rule


def _invoke_by_url(parameters: Parameters, account: AccountView) -> Asked:
    url_id = str(needed(parameters, "UrlId"))
    if (url := account.function_url(url_id)) is None:
        raise UndecidableError(f"There is no function URL {url_id}.")
    tags = _tags(url.function_arn, account)
    by_type = {"lambda:functionurlauthtype": url.auth_type}
    yield ask("lambda:InvokeFunctionUrl", url.function_arn, keys=by_type, resource_tags=tags)
    through_it = {"lambda:invokedviafunctionurl": True}
    yield ask("lambda:InvokeFunction", url.function_arn, keys=through_it, resource_tags=tags)


def _create_function(parameters: Parameters, account: AccountView) -> Asked:
    function, tags = _function(parameters, account), tags_of(parameters.get("Tags"))
    layers = parameters.get("Layers") or ()
    network = parameters.get("VpcConfig") or {}
    yield ask(
        "lambda:CreateFunction",
        function,
        sets={
            "lambda:layer": layers,
            "lambda:securitygroupids": network.get("SecurityGroupIds") or (),
            "lambda:subnetids": network.get("SubnetIds") or (),
        },
        request_tags=tags,
    )
    if tags:
        yield ask("lambda:TagResource", function, request_tags=tags)
    yield pass_role(needed(parameters, "Role"), "lambda.amazonaws.com", account)
    for layer in layers:
        yield ask("lambda:GetLayerVersion", layer)
    yield from _read_code(parameters.get("Code") or {})


def _read_code(code: Parameters) -> Asked:
    """Ask for the object in which code lies, where S3 has it."""
    if "S3Bucket" in code:
        yield ask("s3:GetObject", f"arn:aws:s3:::{code['S3Bucket']}/{needed(code, 'S3Key')}")


def _update_code(parameters: Parameters, account: AccountView) -> Asked:
    yield from _on_function("UpdateFunctionCode")(parameters, account)
    yield from _read_code(parameters)


def _publish_layer(parameters: Parameters, account: AccountView) -> Asked:
    yield ask("lambda:PublishLayerVersion", arn("lambda", f"layer:{needed(parameters, 'LayerName')}", account))
    yield from _read_code(parameters.get("Content") or {})


_RULES: Final[Rules] = {
    "CreateFunction": _create_function,
    "Invoke": _on_function("InvokeFunction"),
    INVOKE_BY_URL: _invoke_by_url,
    "ListFunctions": always("lambda:ListFunctions"),
    "ListTags": existing("lambda:ListTags", arn_in("Resource")),
    "PublishLayerVersion": _publish_layer,
    "UpdateFunctionCode": _update_code,
    **{
        name: _on_function(name)
        for name in ("DeleteFunction", "GetFunction", "GetFunctionConfiguration", "GetFunctionUrlConfig", "GetPolicy")
    },
}
OPERATIONS: Final = {"lambda": _RULES}
