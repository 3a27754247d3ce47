"""The permissions that the operations of Lambda need.

A caller of a function's URL needs two permissions. One is to invoke the URL, the other to invoke the function through
it.

Source: "Control access to Lambda function URLs" in the Lambda developer guide. "Resources and conditions for Lambda
actions" there for versions and aliases. "CreateFunction" in its API reference, whose code S3 gives to the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from spotkeep_local.iam.authorizations.asking import (
    Asked,
    Asking,
    AuthorizationRule,
    Rules,
    UndecidableError,
    always,
    arn_in,
    ask,
    existing,
    needed,
)
from spotkeep_local.iam.calls import INVOKE_BY_URL

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARTS_OF_A_PARTIAL_ARN: Final = 3


def _function(call: Asking) -> str:
    """Return the ARN of a function that is named, as AWS allows, by name, ARN or partial ARN. With its qualifier."""
    named = str(call.needed("FunctionName"))
    if named.startswith("arn:"):
        found = named
    else:
        parts = named.split(":")
        if len(parts) >= _PARTS_OF_A_PARTIAL_ARN and parts[1] == "function":
            if parts[0] != call.account.account_id:
                raise UndecidableError(f"{named} is of another account.")
            parts = parts[2:]
        found = call.arn("lambda", "function:" + ":".join(parts))
    qualifier = call.get("Qualifier")
    return found if qualifier is None else f"{found}:{qualifier}"


def _tags(call: Asking, function: str) -> Mapping[str, str]:
    # Tags are the function's, not those of a version or an alias.
    return call.tags(":".join(function.split(":")[:7]))


def _on_function(action: str) -> AuthorizationRule:
    def rule(call: Asking) -> Asked:
        function = _function(call)
        yield ask(f"lambda:{action}", function, resource_tags=_tags(call, function))

    return rule


def _invoke_by_url(call: Asking) -> Asked:
    url_id = str(call.needed("UrlId"))
    if (url := call.account.function_url(url_id)) is None:
        raise UndecidableError(f"There is no function URL {url_id}.")
    tags = _tags(call, url.function_arn)
    by_type = {"lambda:functionurlauthtype": url.auth_type}
    yield ask("lambda:InvokeFunctionUrl", url.function_arn, keys=by_type, resource_tags=tags)
    through_it = {"lambda:invokedviafunctionurl": True}
    yield ask("lambda:InvokeFunction", url.function_arn, keys=through_it, resource_tags=tags)


def _create_function(call: Asking) -> Asked:
    function, tags = _function(call), call.new_tags
    layers = call.get("Layers") or ()
    network = call.get("VpcConfig") or {}
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
    yield call.pass_role(call.needed("Role"), "lambda.amazonaws.com")
    for layer in layers:
        yield ask("lambda:GetLayerVersion", layer)
    yield from _read_code(call.get("Code") or {})


def _read_code(code: Mapping[str, Any]) -> Asked:
    """Ask for the object in which code lies, where S3 has it."""
    if "S3Bucket" in code:
        yield ask("s3:GetObject", f"arn:aws:s3:::{code['S3Bucket']}/{needed(code, 'S3Key')}")


def _update_code(call: Asking) -> Asked:
    yield from _on_function("UpdateFunctionCode")(call)
    yield from _read_code(call.parameters)


def _publish_layer(call: Asking) -> Asked:
    yield ask("lambda:PublishLayerVersion", call.arn("lambda", f"layer:{call.needed('LayerName')}"))
    yield from _read_code(call.get("Content") or {})


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
