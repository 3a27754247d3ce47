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

from spotkeep_local.iam.authorization import Call
from spotkeep_local.iam.authorizations.asking import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spotkeep_local.iam.authorization import Authorization, ServiceCall
    from spotkeep_local.iam.judge import Judge
    from spotkeep_local.iam.local_account import LocalAccount

_LOG = logging.getLogger(__name__)
_KEY_ACTIONS = {
    "sqs:SendMessage": ("kms:GenerateDataKey", "kms:Decrypt"),
    "sqs:ReceiveMessage": ("kms:Decrypt",),
    "sns:Publish": ("kms:GenerateDataKey", "kms:Decrypt"),
}


def is_allowed(call: ServiceCall, *, judge: Judge, account: LocalAccount) -> bool:
    """Return whether a service may do what it is about to do.

    Args:
        call: What it is about to do.
        judge: Decides, and counts it as a use.
        account: What is in the account.
    """
    for role_arn, authorization in _asked(call, account):
        service, _, action = authorization.action.partition(":")
        operation = "Invoke" if action == "InvokeFunction" else action
        decision = judge.decision_for_service(
            Call(service=service, operation=operation, parameters={}),
            authorization,
            role_arn=role_arn,
            session=call.service,
        )
        if not decision.allowed:
            _LOG.warning(
                "denied: %s may not %s on %s: %s",
                role_arn or call.service,
                authorization.action,
                authorization.resource,
                decision.unknown or decision.reason.value,
            )
            return False
    return True


def agent_may_connect(role: str, instance_arn: str | None, *, judge: Judge, account: LocalAccount) -> bool:
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


def _asked(call: ServiceCall, account: LocalAccount) -> Iterator[tuple[str | None, Authorization]]:
    """Yield all that a call asks for, each with the role that is asked for it; None where it is the service itself."""
    if call.role_arn is not None:
        source = _source_of_trust(call)
        keys = {"aws:sourcearn": source, "aws:sourceaccount": source and account.account_id}
        yield None, ask("sts:AssumeRole", call.role_arn, keys=keys)
        itself = {}
    else:
        itself = {"aws:sourcearn": call.source_arn, "aws:sourceaccount": account.account_id}
    for action in call.actions:
        of_ec2 = action.startswith("ec2:")
        yield (
            call.role_arn,
            ask(
                action,
                call.resource,
                keys=itself | ({"ec2:region": account.region} if of_ec2 else {}),
                resource_tags=account.tags(call.resource) if of_ec2 and call.resource != "*" else None,
                tag_prefixes=("aws", "ec2"),
            ),
        )
        if action in _KEY_ACTIONS and (key := account.key_of(call.resource)) is not None:
            via = {"kms:viaservice": f"{action.partition(':')[0]}.{account.region}.amazonaws.com"}
            for key_action in _KEY_ACTIONS[action]:
                yield call.role_arn, ask(key_action, key.arn, keys=itself or via)


def _source_of_trust(call: ServiceCall) -> str | None:
    """Return the `aws:SourceArn` with which a service takes a role; None where AWS documents none."""
    if call.service == "fis.amazonaws.com":
        return call.source_arn
    if call.service == "scheduler.amazonaws.com":
        # Of the schedule's group, not of the schedule.
        return call.source_arn.rpartition("/")[0].replace(":schedule/", ":schedule-group/")
    return None
