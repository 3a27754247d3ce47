"""What is asked for by the operations of services of which few are judged.

CloudWatch Logs: what acts on a group as a whole asks for the ARN that ends in `:log-stream:`, so that a policy has to
name the group with `:*` behind it.

Amazon ECR, Price List, Service Quotas: none of the operations knows resources. A pull from ECR goes through the
registry's own protocol, for which there is no registry here.

Secrets Manager: an ARN of a secret ends in six characters that its name does not have. One that is given by its name is
asked for with question marks in their place, which only a policy with a pattern matches.

Sources: "Overview of managing access permissions to your CloudWatch Logs resources" in the CloudWatch Logs user guide;
"Using condition keys to limit access to CloudWatch namespaces" in the CloudWatch user guide; "Identity-based policy
examples for AWS Fault Injection Service" in the FIS user guide; "AWS KMS permissions", "Condition keys for AWS KMS" in
the KMS developer guide; "Secret encryption and decryption in AWS Secrets Manager", "Permissions policy examples" in the
Secrets Manager user guide.
"""

from __future__ import annotations

from typing import Final

from spotkeep_local.iam.authorizations.asking import (
    AccountView,
    Asked,
    AuthorizationRule,
    Parameters,
    Rules,
    UndecidableError,
    always,
    arn,
    ask,
    existing,
    key_named,
    made,
    needed,
    pass_role,
    tags_of,
    use_key,
)


def _put_metrics(parameters: Parameters, _account: AccountView) -> Asked:
    yield ask("cloudwatch:PutMetricData", keys={"cloudwatch:namespace": needed(parameters, "Namespace")})


def _on_alarm(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Asked:
        alarm = arn("cloudwatch", f"alarm:{needed(parameters, 'AlarmName')}", account)
        tags = tags_of(parameters.get("Tags"))
        actions = {"cloudwatch:alarmactions": parameters.get("AlarmActions") or ()}
        yield ask(f"cloudwatch:{action}", alarm, sets=actions, request_tags=tags, resource_tags=account.tags(alarm))

    return rule


def _describe_alarms(parameters: Parameters, account: AccountView) -> Asked:
    # Alarms that are described by a prefix or a state are all asked for.
    for name in parameters.get("AlarmNames") or ["*"]:
        alarm = arn("cloudwatch", f"alarm:{name}", account)
        yield ask("cloudwatch:DescribeAlarms", alarm, resource_tags=account.tags(alarm))


def _log_group(parameters: Parameters, account: AccountView) -> str:
    """Return the ARN of a group, without what AWS puts behind it."""
    identifier = parameters.get("logGroupIdentifier")
    if identifier is not None and str(identifier).startswith("arn:"):
        return str(identifier).removesuffix(":*")
    name = identifier if identifier is not None else parameters.get("logGroupName")
    if name is None:
        raise UndecidableError("The request names no log group.")
    return arn("logs", f"log-group:{name}", account)


def _on_log_group(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Asked:
        group = _log_group(parameters, account)
        tags = {} if action == "CreateLogGroup" else account.tags(group)
        yield ask(f"logs:{action}", f"{group}:log-stream:", request_tags=parameters.get("tags"), resource_tags=tags)

    return rule


def _on_log_stream(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Asked:
        group, stream = _log_group(parameters, account), needed(parameters, "logStreamName")
        yield ask(f"logs:{action}", f"{group}:log-stream:{stream}")

    return rule


def _on_experiment(action: str) -> AuthorizationRule:
    return existing(
        f"fis:{action}", lambda parameters, account: arn("fis", f"experiment/{needed(parameters, 'id')}", account)
    )


def _start_experiment(parameters: Parameters, account: AccountView) -> Asked:
    template = arn("fis", f"experiment-template/{needed(parameters, 'experimentTemplateId')}", account)
    tags = tags_of(parameters.get("tags"))
    yield ask("fis:StartExperiment", template, request_tags=tags, resource_tags=account.tags(template))
    experiment = arn("fis", "experiment/*", account)
    yield from made("fis:StartExperiment", experiment, tags, tagging="fis:TagResource")


def _create_template(parameters: Parameters, account: AccountView) -> Asked:
    template, tags = arn("fis", "experiment-template/*", account), tags_of(parameters.get("tags"))
    yield from made("fis:CreateExperimentTemplate", template, tags, tagging="fis:TagResource")
    for action in dict.fromkeys(each["actionId"] for each in needed(parameters, "actions").values()):
        yield ask("fis:CreateExperimentTemplate", arn("fis", f"action/{action}", account), request_tags=tags)
    # An experiment acts with its template's role.
    yield pass_role(needed(parameters, "roleArn"), "fis.amazonaws.com", account)


def _on_key(action: str) -> AuthorizationRule:
    """Return the rule of an operation of KMS that a caller uses itself, and not through another service.

    It names its key. KMS reads the key from ciphertexts, too; nothing here does.
    """

    def rule(parameters: Parameters, account: AccountView) -> Asked:
        named = str(needed(parameters, "KeyId"))
        key, alias = key_named(named, account).arn, named.rpartition(":")[2]
        context = parameters.get("EncryptionContext") or {}
        keys = {
            "kms:calleraccount": account.account_id,
            "kms:requestalias": alias if alias.startswith("alias/") else None,
            **{f"kms:encryptioncontext:{name}": value for name, value in context.items()},
        }
        sets = {"kms:encryptioncontextkeys": context}
        yield ask(f"kms:{action}", key, keys=keys, sets=sets, resource_tags=account.tags(key))

    return rule


def _get_secret(parameters: Parameters, account: AccountView) -> Asked:
    named = str(needed(parameters, "SecretId"))
    secret = named if named.startswith("arn:") else arn("secretsmanager", f"secret:{named}-??????", account)
    keys = {
        "secretsmanager:secretid": secret,
        "secretsmanager:versionid": parameters.get("VersionId"),
        "secretsmanager:versionstage": parameters.get("VersionStage", "AWSCURRENT"),
    }
    yield ask("secretsmanager:GetSecretValue", secret, keys=keys, resource_tags=account.tags(secret))
    key, context = account.key_of(secret), {"SecretARN": secret}
    yield from use_key(key, ("Decrypt",), via="secretsmanager", account=account, encryption_context=context)


OPERATIONS: Final[dict[str, Rules]] = {
    "cloudwatch": {
        "DescribeAlarms": _describe_alarms,
        "PutMetricAlarm": _on_alarm("PutMetricAlarm"),
        "PutMetricData": _put_metrics,
        "SetAlarmState": _on_alarm("SetAlarmState"),
    },
    "ecr": {"GetAuthorizationToken": always("ecr:GetAuthorizationToken")},
    "fis": {
        "CreateExperimentTemplate": _create_template,
        "GetExperiment": _on_experiment("GetExperiment"),
        "StartExperiment": _start_experiment,
    },
    "kms": {
        name: _on_key(name)
        for name in ("Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "GenerateDataKeyWithoutPlaintext")
    },
    "logs": {
        "CreateLogStream": _on_log_stream("CreateLogStream"),
        "DeleteLogStream": _on_log_stream("DeleteLogStream"),
        "DescribeLogGroups": always("logs:DescribeLogGroups"),
        "GetLogEvents": _on_log_stream("GetLogEvents"),
        "PutLogEvents": _on_log_stream("PutLogEvents"),
        **{
            name: _on_log_group(name)
            for name in ("CreateLogGroup", "DeleteLogGroup", "DescribeLogStreams", "FilterLogEvents")
        },
        "PutRetentionPolicy": _on_log_group("PutRetentionPolicy"),
    },
    "pricing": {"GetProducts": always("pricing:GetProducts")},
    "secretsmanager": {"GetSecretValue": _get_secret},
    "service-quotas": {"ListServiceQuotas": always("servicequotas:ListServiceQuotas")},
}
