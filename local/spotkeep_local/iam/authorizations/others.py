"""The permissions that the operations of services with few judged operations need.

In CloudWatch Logs, an operation on a whole group needs the ARN that ends in `:log-stream:`. So a policy has to name the
group with `:*` behind it.

The operations of Amazon ECR, Price List and Service Quotas know no resources, and of FSx DescribeFileSystems. A pull
from ECR uses the registry's own protocol, for which there is no registry here.

In Secrets Manager, the ARN of a secret ends in six characters that its name does not have. A secret that is given by
its name is asked for with question marks in their place. Only a policy with a pattern matches that.

Sources: "Overview of managing access permissions to your CloudWatch Logs resources" in the CloudWatch Logs user guide.
"Using condition keys to limit access to CloudWatch namespaces" in the CloudWatch user guide. "Identity-based policy
examples for AWS Fault Injection Service" in the FIS user guide. "DescribeMountTargetSecurityGroups" in the EFS API
reference. "AWS KMS permissions", "Condition keys for AWS KMS" in the KMS developer guide. "Secret encryption and
decryption in AWS Secrets Manager", "Permissions policy examples" in the Secrets Manager user guide.
"""

from __future__ import annotations

from typing import Final

from spotkeep_local.iam.authorizations.asking import (
    Asked,
    Asking,
    AuthorizationRule,
    Rules,
    UndecidableError,
    always,
    ask,
    existing,
    made,
)


def _put_metrics(call: Asking) -> Asked:
    yield ask("cloudwatch:PutMetricData", keys={"cloudwatch:namespace": call.needed("Namespace")})


def _on_alarm(action: str) -> AuthorizationRule:
    def rule(call: Asking) -> Asked:
        alarm, tags = call.arn("cloudwatch", f"alarm:{call.needed('AlarmName')}"), call.new_tags
        actions = {"cloudwatch:alarmactions": call.get("AlarmActions") or ()}
        yield ask(f"cloudwatch:{action}", alarm, sets=actions, request_tags=tags, resource_tags=call.tags(alarm))

    return rule


def _describe_alarms(call: Asking) -> Asked:
    # Alarms that are described by a prefix or a state are all asked for.
    for name in call.get("AlarmNames") or ["*"]:
        alarm = call.arn("cloudwatch", f"alarm:{name}")
        yield ask("cloudwatch:DescribeAlarms", alarm, resource_tags=call.tags(alarm))


def _log_group(call: Asking) -> str:
    """Return the ARN of a log group, without the text that AWS puts behind it."""
    identifier = call.get("logGroupIdentifier")
    if identifier is not None and str(identifier).startswith("arn:"):
        return str(identifier).removesuffix(":*")
    name = identifier if identifier is not None else call.get("logGroupName")
    if name is None:
        raise UndecidableError("The request names no log group.")
    return call.arn("logs", f"log-group:{name}")


def _on_log_group(action: str) -> AuthorizationRule:
    def rule(call: Asking) -> Asked:
        group = _log_group(call)
        tags = {} if action == "CreateLogGroup" else call.tags(group)
        yield ask(f"logs:{action}", f"{group}:log-stream:", request_tags=call.get("tags"), resource_tags=tags)

    return rule


def _on_log_stream(action: str) -> AuthorizationRule:
    def rule(call: Asking) -> Asked:
        group, stream = _log_group(call), call.needed("logStreamName")
        yield ask(f"logs:{action}", f"{group}:log-stream:{stream}")

    return rule


def _experiment(call: Asking) -> str:
    return call.arn("fis", f"experiment/{call.needed('id')}")


def _start_experiment(call: Asking) -> Asked:
    template = call.arn("fis", f"experiment-template/{call.needed('experimentTemplateId')}")
    tags = call.new_tags
    yield ask("fis:StartExperiment", template, request_tags=tags, resource_tags=call.tags(template))
    experiment = call.arn("fis", "experiment/*")
    yield from made("fis:StartExperiment", experiment, tags, tagging="fis:TagResource")


def _create_template(call: Asking) -> Asked:
    template, tags = call.arn("fis", "experiment-template/*"), call.new_tags
    yield from made("fis:CreateExperimentTemplate", template, tags, tagging="fis:TagResource")
    for action in dict.fromkeys(each["actionId"] for each in call.needed("actions").values()):
        yield ask("fis:CreateExperimentTemplate", call.arn("fis", f"action/{action}"), request_tags=tags)
    # An experiment acts with its template's role.
    yield call.pass_role(call.needed("roleArn"), "fis.amazonaws.com")


def _on_key(action: str) -> AuthorizationRule:
    """Return the rule of an operation of KMS that a caller uses itself, and not through another service.

    It names its key. KMS reads the key from ciphertexts, too. Nothing here does.
    """

    def rule(call: Asking) -> Asked:
        named = str(call.needed("KeyId"))
        key, alias = call.key_named(named).arn, named.rpartition(":")[2]
        context = call.get("EncryptionContext") or {}
        keys = {
            "kms:calleraccount": call.account.account_id,
            "kms:requestalias": alias if alias.startswith("alias/") else None,
            **{f"kms:encryptioncontext:{name}": value for name, value in context.items()},
        }
        sets = {"kms:encryptioncontextkeys": context}
        yield ask(f"kms:{action}", key, keys=keys, sets=sets, resource_tags=call.tags(key))

    return rule


def _secret(call: Asking) -> str:
    named = str(call.needed("SecretId"))
    return named if named.startswith("arn:") else call.arn("secretsmanager", f"secret:{named}-??????")


def _create_secret(call: Asking) -> Asked:
    name, named = str(call.needed("Name")), call.get("KmsKeyId")
    secret = call.arn("secretsmanager", f"secret:{name}-??????")
    keys = {"secretsmanager:name": name}
    yield from made(
        "secretsmanager:CreateSecret", secret, call.new_tags, tagging="secretsmanager:TagResource", keys=keys
    )
    key = None if named is None else call.key_named(named)
    context = {"SecretARN": secret}
    yield from call.use_key(key, ("GenerateDataKey", "Decrypt"), via="secretsmanager", encryption_context=context)


def _on_secret(action: str) -> AuthorizationRule:
    """Return the rule of an operation on a secret that is there. One that stores a value uses the secret's key."""

    def rule(call: Asking) -> Asked:
        secret = _secret(call)
        keys = {"secretsmanager:secretid": secret}
        yield ask(f"secretsmanager:{action}", secret, keys=keys, resource_tags=call.tags(secret))
        if action == "PutSecretValue":
            key, context = call.account.key_of(secret), {"SecretARN": secret}
            yield from call.use_key(
                key, ("GenerateDataKey", "Decrypt"), via="secretsmanager", encryption_context=context
            )

    return rule


def _get_secret(call: Asking) -> Asked:
    secret = _secret(call)
    keys = {
        "secretsmanager:secretid": secret,
        "secretsmanager:versionid": call.get("VersionId"),
        "secretsmanager:versionstage": call.get("VersionStage", "AWSCURRENT"),
    }
    yield ask("secretsmanager:GetSecretValue", secret, keys=keys, resource_tags=call.tags(secret))
    key, context = call.account.key_of(secret), {"SecretARN": secret}
    yield from call.use_key(key, ("Decrypt",), via="secretsmanager", encryption_context=context)


def _shared(call: Asking) -> str:
    """Return the ARN of a file system of EFS, which a request names by its id or its ARN."""
    named = str(call.needed("FileSystemId"))
    return named if named.startswith("arn:") else call.arn("elasticfilesystem", f"file-system/{named}")


def _on_shared(action: str) -> AuthorizationRule:
    def rule(call: Asking) -> Asked:
        file_system = _shared(call)
        yield ask(f"elasticfilesystem:{action}", file_system, resource_tags=call.tags(file_system))

    return rule


def _create_shared(call: Asking) -> Asked:
    yield ask("elasticfilesystem:CreateFileSystem", request_tags=call.new_tags)


def _describe_mount_target_groups(call: Asking) -> Asked:
    # The request names the mount target alone. IAM judges its file system, and EFS asks EC2 for the caller.
    target = str(call.needed("MountTargetId"))
    if (name := call.account.file_system_of(target)) is None:
        raise UndecidableError(f"There is no mount target {target}.")
    file_system = call.arn("elasticfilesystem", f"file-system/{name}")
    yield ask("elasticfilesystem:DescribeMountTargetSecurityGroups", file_system, resource_tags=call.tags(file_system))
    yield ask("ec2:DescribeNetworkInterfaceAttribute", keys={"ec2:region": call.account.region})


def _create_lustre(call: Asking) -> Asked:
    made_one = call.arn("fsx", "file-system/*")
    yield from made("fsx:CreateFileSystem", made_one, call.new_tags, tagging="fsx:TagResource")


def _delete_lustre(call: Asking) -> Asked:
    file_system = call.arn("fsx", f"file-system/{call.needed('FileSystemId')}")
    yield ask("fsx:DeleteFileSystem", file_system, resource_tags=call.tags(file_system))


OPERATIONS: Final[dict[str, Rules]] = {
    "cloudwatch": {
        "DescribeAlarms": _describe_alarms,
        "PutMetricAlarm": _on_alarm("PutMetricAlarm"),
        "PutMetricData": _put_metrics,
        "SetAlarmState": _on_alarm("SetAlarmState"),
    },
    "efs": {
        "CreateFileSystem": _create_shared,
        "CreateMountTarget": _on_shared("CreateMountTarget"),
        "DeleteFileSystem": _on_shared("DeleteFileSystem"),
        "DescribeMountTargetSecurityGroups": _describe_mount_target_groups,
        "DescribeMountTargets": _on_shared("DescribeMountTargets"),
    },
    "ecr": {"GetAuthorizationToken": always("ecr:GetAuthorizationToken")},
    "fis": {
        "CreateExperimentTemplate": _create_template,
        "GetExperiment": existing("fis:GetExperiment", _experiment),
        "StartExperiment": _start_experiment,
    },
    "fsx": {
        "CreateFileSystem": _create_lustre,
        "DeleteFileSystem": _delete_lustre,
        "DescribeFileSystems": always("fsx:DescribeFileSystems"),
    },
    "kms": {
        name: _on_key(name)
        for name in ("Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "GenerateDataKeyWithoutPlaintext")
    },
    "logs": {
        "DescribeLogGroups": always("logs:DescribeLogGroups"),
        **{
            name: _on_log_group(name)
            for name in (
                "CreateLogGroup",
                "DeleteLogGroup",
                "DescribeLogStreams",
                "FilterLogEvents",
                "PutRetentionPolicy",
            )
        },
        **{
            name: _on_log_stream(name)
            for name in ("CreateLogStream", "DeleteLogStream", "GetLogEvents", "PutLogEvents")
        },
    },
    "pricing": {"GetProducts": always("pricing:GetProducts")},
    "secretsmanager": {
        "CreateSecret": _create_secret,
        "GetSecretValue": _get_secret,
        **{name: _on_secret(name) for name in ("DeleteSecret", "DescribeSecret", "PutSecretValue", "RestoreSecret")},
    },
    "service-quotas": {"ListServiceQuotas": always("servicequotas:ListServiceQuotas")},
}
