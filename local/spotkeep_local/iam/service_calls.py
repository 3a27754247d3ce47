"""What AWS's services call by themselves, judged like every other call: deliveries, and what they do in a role.

| who | calls | by |
|---|---|---|
| EventBridge, for a rule | its targets | the target's policy, for `events.amazonaws.com` and the rule |
| Scheduler | its target | the schedule's role |
| SNS | queues and functions that subscribed | their policies, for `sns.amazonaws.com` and the topic |
| Lambda, for an event source | the queue | the function's role |
| Lambda, for logs | the log group | the function's role |
| FIS, for an experiment | EC2: finds instances, interrupts them | the experiment template's role |
| CloudFormation, for a custom resource | the resource's function | the stack's role |
| Systems Manager's agent, in a training job or on an instance | its channels | the job's role, the instance's |

A service acts in a role only as long as the role's trust policy lets it, with the condition keys that AWS documents for
this service; for Lambda it documents none. A queue or topic that a customer's key encrypts asks for that key too, of
the same caller.

What is denied does not happen, and is logged, as on AWS, where it shows in metrics and dead-letter queues alone.

Sources: "Using resource-based policies for Amazon EventBridge"; "Set up the execution role" and "Confused deputy
prevention" in the Scheduler user guide; "Subscribing an Amazon SQS queue to a topic"; "Lambda execution role
permissions" of event source mappings; "IAM roles for AWS FIS experiments"; "AWS CloudFormation service role".
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from spotkeep_local.iam.authorization import Authorization, Call
from spotkeep_local.iam.authorizations.asking import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spotkeep_local.iam.authorization import ServiceCall
    from spotkeep_local.iam.authorizations import AccountView
    from spotkeep_local.iam.judge import Judge

_LOG = logging.getLogger(__name__)
_OPERATIONS = {
    "lambda:InvokeFunction": ("lambda", "Invoke"),
    "sqs:SendMessage": ("sqs", "SendMessage"),
    "sqs:ReceiveMessage": ("sqs", "ReceiveMessage"),
    "sqs:DeleteMessage": ("sqs", "DeleteMessage"),
    "sqs:GetQueueAttributes": ("sqs", "GetQueueAttributes"),
    "sns:Publish": ("sns", "Publish"),
    "logs:CreateLogStream": ("logs", "CreateLogStream"),
    "logs:PutLogEvents": ("logs", "PutLogEvents"),
    "ec2:DescribeInstances": ("ec2", "DescribeInstances"),
    "ec2:SendSpotInstanceInterruptions": ("ec2", "SendSpotInstanceInterruptions"),
    "sts:AssumeRole": ("sts", "AssumeRole"),
}
_KEY_ACTIONS = {
    "sqs:SendMessage": ("kms:GenerateDataKey", "kms:Decrypt"),
    "sqs:ReceiveMessage": ("kms:Decrypt",),
    "sns:Publish": ("kms:GenerateDataKey", "kms:Decrypt"),
}


def is_allowed(call: ServiceCall, *, judge: Judge, account: AccountView) -> bool:
    """Return whether a service may do what it is about to do.

    Args:
        call: What it is about to do.
        judge: Decides, and counts it as a use.
        account: What is in the account.
    """
    for authorization in _authorizations(call, account):
        service, operation = _OPERATIONS.get(authorization.action, ("kms", authorization.action.partition(":")[2]))
        asked = Call(service=service, operation=operation, parameters={})
        role_arn = None if authorization.service_principal else call.role_arn
        decision = judge.decision_for_service(asked, authorization, role_arn=role_arn, session=call.service)
        if not decision.allowed:
            who = role_arn or call.service
            _LOG.warning(
                "denied: %s may not %s on %s: %s",
                who,
                authorization.action,
                authorization.resource,
                decision.unknown or decision.reason.value,
            )
            return False
    return True


def agent_may_connect(role: str, instance_arn: str | None, *, judge: Judge, account: AccountView) -> bool:
    """Return whether Systems Manager's agent may open its channels, and so take sessions.

    Args:
        role: The name of the training job's, or of the instance's.
        instance_arn: The ARN of the instance; None in a training job.
        judge: Decides, and counts it as a use.
        account: What is in the account.
    """
    role_arn = account.role_arn(role)
    return role_arn is not None and all(
        judge.decision_for_service(
            Call(service="ssmmessages", operation=operation, parameters={}),
            ask(f"ssmmessages:{operation}", keys={"ec2:sourceinstancearn": instance_arn}),
            role_arn=role_arn,
            session="amazon-ssm-agent",
        ).allowed
        for operation in ("CreateControlChannel", "CreateDataChannel", "OpenControlChannel", "OpenDataChannel")
    )


def _authorizations(call: ServiceCall, account: AccountView) -> Iterator[Authorization]:
    if call.role_arn is not None:
        source = _source_of_trust(call)
        yield ask(
            "sts:AssumeRole",
            call.role_arn,
            keys={"aws:sourcearn": source, "aws:sourceaccount": source and account.account_id},
            service_principal=call.service,
        )
    principal = call.service if call.role_arn is None else None
    itself = {"aws:sourcearn": call.source_arn, "aws:sourceaccount": account.account_id} if principal else {}
    for action in call.actions:
        of_ec2 = action.startswith("ec2:")
        yield ask(
            action,
            call.resource,
            keys=itself | ({"ec2:region": account.region} if of_ec2 else {}),
            resource_tags=account.tags(call.resource) if of_ec2 and call.resource != "*" else None,
            tag_prefixes=("aws", "ec2"),
            service_principal=principal,
        )
        key = account.key_of(call.resource) if action in _KEY_ACTIONS else None
        for key_action in _KEY_ACTIONS[action] if key is not None else ():
            via = {"kms:viaservice": f"{action.partition(':')[0]}.{account.region}.amazonaws.com"}
            assert key is not None  # noqa: S101 - the loop is empty without one
            yield ask(key_action, key.arn, keys=itself or via, service_principal=principal)


def _source_of_trust(call: ServiceCall) -> str | None:
    """Return the `aws:SourceArn` with which a service takes a role; None where AWS documents none."""
    if call.service == "fis.amazonaws.com":
        return call.source_arn
    if call.service == "scheduler.amazonaws.com":
        # Of the schedule's group, not of the schedule.
        return call.source_arn.rpartition("/")[0].replace(":schedule/", ":schedule-group/")
    return None
