"""The operations of service environments, scheduling policies, job queues and quota shares, and those on tags.

All of them take effect at once. No resource is CREATING, UPDATING or DELETING for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spotkeep_local.batch import description, request_rules
from spotkeep_local.batch.records import (
    NUM_INSTANCES,
    UNLIMITED,
    JobQueue,
    QuotaShare,
    SchedulingPolicy,
    ServiceEnvironment,
    SharingStrategy,
)
from spotkeep_local.batch.request_rules import ClientError, refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.batch.account import BatchAccount
    from spotkeep_local.service_base.aws_service import Operation


class Resources:
    """The operations of resources. The caller holds the account's lock.

    Args:
        account: Keeps them.
        end_jobs: Ends all jobs of a queue, or of one of its shares, by their ARNs.
    """

    def __init__(self, account: BatchAccount, *, end_jobs: Callable[[str], None]) -> None:
        self._account = account
        self._end_jobs = end_jobs
        self.operations: dict[str, Operation] = {
            "CreateServiceEnvironment": self._create_environment,
            "UpdateServiceEnvironment": self._update_environment,
            "DeleteServiceEnvironment": self._delete_environment,
            "DescribeServiceEnvironments": self._describe_environments,
            "CreateSchedulingPolicy": self._create_policy,
            "UpdateSchedulingPolicy": self._update_policy,
            "DeleteSchedulingPolicy": self._delete_policy,
            "DescribeSchedulingPolicies": self._describe_policies,
            "CreateJobQueue": self._create_queue,
            "UpdateJobQueue": self._update_queue,
            "DeleteJobQueue": self._delete_queue,
            "DescribeJobQueues": self._describe_queues,
            "CreateQuotaShare": self._create_share,
            "UpdateQuotaShare": self._update_share,
            "DeleteQuotaShare": self._delete_share,
            "DescribeQuotaShare": self._describe_share,
            "ListQuotaShares": self._list_shares,
            "TagResource": self._tag,
            "UntagResource": self._untag,
            "ListTagsForResource": self._list_tags,
        }

    # Service environments.

    def _create_environment(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["serviceEnvironmentName"]
        arn = self._account.arn("service-environment", name)
        refuse(
            [
                *request_rules.name_problems("serviceEnvironmentName", name),
                *request_rules.limit_problems(request["capacityLimits"], of_share=False),
                *request_rules.tag_problems(request.get("tags") or {}),
            ]
        )
        self._refuse_taken(arn, self._account.environments, most=request_rules.MOST_ENVIRONMENTS)
        self._account.environments[arn] = ServiceEnvironment(
            name=name,
            arn=arn,
            enabled=_enabled(request),
            limits=_limits(request["capacityLimits"]),
            tags=request.get("tags") or {},
        )
        return {"serviceEnvironmentName": name, "serviceEnvironmentArn": arn}

    def _update_environment(self, request: dict[str, Any]) -> dict[str, Any]:
        found = self._account.environment(request["serviceEnvironment"])
        if "capacityLimits" in request:
            refuse(request_rules.limit_problems(request["capacityLimits"], of_share=False))
            limits = _limits(request["capacityLimits"])
            for queue in self._account.queues.values():
                if queue.environment == found.arn:
                    refuse(_unit_problems(limits, self._account.policy_of(queue)))
            found = replace(found, limits=limits)
        self._account.environments[found.arn] = replace(found, enabled=_enabled(request, now=found.enabled))
        return {"serviceEnvironmentName": found.name, "serviceEnvironmentArn": found.arn}

    def _delete_environment(self, request: dict[str, Any]) -> dict[str, Any]:
        found = self._account.environment(request["serviceEnvironment"])
        _refuse_enabled(found.arn, enabled=found.enabled)
        users = [queue.name for queue in self._account.queues.values() if queue.environment == found.arn]
        if users:
            raise ClientError(f"Cannot delete, found existing JobQueue relationship: {', '.join(users)}")
        del self._account.environments[found.arn]
        return {}

    def _describe_environments(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._described(
            self._account.environments,
            request,
            kind="service-environment",
            describe=description.environment,
            member="serviceEnvironments",
        )

    # Scheduling policies.

    def _create_policy(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["name"]
        arn = self._account.arn("scheduling-policy", name)
        refuse(
            [
                *request_rules.name_problems("name", name),
                *request_rules.new_policy_problems(request),
                *request_rules.tag_problems(request.get("tags") or {}),
            ]
        )
        self._refuse_taken(arn, self._account.policies, most=None)
        self._account.policies[arn] = SchedulingPolicy(
            name=name,
            arn=arn,
            quota_share=request["quotaSharePolicy"],
            tags=request.get("tags") or {},
        )
        return {"name": name, "arn": arn}

    def _update_policy(self, request: dict[str, Any]) -> dict[str, Any]:
        found = self._account.policy(request["arn"])
        refuse(request_rules.policy_problems(request))
        quota_share = request.get("quotaSharePolicy") or found.quota_share
        self._account.policies[found.arn] = replace(found, quota_share=quota_share)
        return {}

    def _delete_policy(self, request: dict[str, Any]) -> dict[str, Any]:
        found = self._account.policy(request["arn"])
        users = [queue.name for queue in self._account.queues.values() if queue.policy == found.arn]
        if users:
            raise ClientError(f"Cannot delete {found.arn}: it is used by {', '.join(users)}")
        del self._account.policies[found.arn]
        return {}

    def _describe_policies(self, request: dict[str, Any]) -> dict[str, Any]:
        found = [self._account.policies[arn] for arn in request["arns"] if arn in self._account.policies]
        return {"schedulingPolicies": [description.policy(each) for each in found]}

    # Job queues.

    def _create_queue(self, request: dict[str, Any]) -> dict[str, Any]:
        refuse([*request_rules.new_queue_problems(request), *request_rules.tag_problems(request.get("tags") or {})])
        name = request["jobQueueName"]
        arn = self._account.arn("job-queue", name)
        self._refuse_taken(arn, self._account.queues, most=request_rules.MOST_QUEUES)
        environment = self._account.environment(request["serviceEnvironmentOrder"][0]["serviceEnvironment"])
        policy = self._account.policy(request["schedulingPolicyArn"]) if request.get("schedulingPolicyArn") else None
        refuse(self._placing_problems(arn, environment, policy))
        self._account.queues[arn] = JobQueue(
            name=name,
            arn=arn,
            enabled=_enabled(request),
            priority=request["priority"],
            environment=environment.arn,
            policy=None if policy is None else policy.arn,
            time_limit_actions=request.get("jobStateTimeLimitActions") or [],
            tags=request.get("tags") or {},
        )
        return {"jobQueueName": name, "jobQueueArn": arn}

    def _update_queue(self, request: dict[str, Any]) -> dict[str, Any]:
        found = self._account.queue(request["jobQueue"])
        refuse(request_rules.queue_problems(request))
        environment = self._account.environments[found.environment]
        if order := request.get("serviceEnvironmentOrder"):
            environment = self._account.environment(order[0]["serviceEnvironment"])
        policy = self._account.policy_of(found)
        if arn := request.get("schedulingPolicyArn"):
            if policy is None:
                raise ClientError(f"{found.name} was made without a scheduling policy, and gets none later")
            policy = self._account.policy(arn)
        refuse(self._placing_problems(found.arn, environment, policy))
        self._account.queues[found.arn] = replace(
            found,
            enabled=_enabled(request, now=found.enabled),
            priority=request.get("priority", found.priority),
            environment=environment.arn,
            policy=None if policy is None else policy.arn,
            time_limit_actions=request.get("jobStateTimeLimitActions", found.time_limit_actions),
        )
        return {"jobQueueName": found.name, "jobQueueArn": found.arn}

    def _delete_queue(self, request: dict[str, Any]) -> dict[str, Any]:
        found = self._account.queue(request["jobQueue"])
        _refuse_enabled(found.arn, enabled=found.enabled)
        shares = [share.name for share in self._account.shares_of(found)]
        if shares:
            raise ClientError(f"Cannot delete {found.arn}: it has the quota shares {', '.join(shares)}")
        self._end_jobs(found.arn)
        del self._account.queues[found.arn]
        return {}

    def _describe_queues(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._described(
            self._account.queues,
            request,
            kind="job-queue",
            describe=description.queue,
            member="jobQueues",
        )

    # Quota shares.

    def _create_share(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["quotaShareName"]
        queue = self._account.queue(request["jobQueue"])
        refuse(
            [
                *request_rules.name_problems("quotaShareName", name),
                *request_rules.share_problems(request),
                *request_rules.tag_problems(request.get("tags") or {}),
            ]
        )
        if self._account.policy_of(queue) is None:
            raise ClientError(
                f"{queue.arn} has no scheduling policy with a quotaSharePolicy, so it has no quota shares"
            )
        arn = f"{queue.arn}/quota-share/{name}"
        shares = {share.arn: share for share in self._account.shares_of(queue)}
        self._refuse_taken(arn, shares, most=request_rules.MOST_SHARES)
        sharing = request["resourceSharingConfiguration"]
        self._account.shares[arn] = QuotaShare(
            name=name,
            arn=arn,
            queue=queue.arn,
            enabled=_enabled(request),
            limits=_limits(request["capacityLimits"]),
            strategy=SharingStrategy(sharing["strategy"]),
            borrow_limit=sharing.get("borrowLimit", UNLIMITED),
            preempts_within=request["preemptionConfiguration"]["inSharePreemption"] == "ENABLED",
            tags=request.get("tags") or {},
        )
        return {"quotaShareName": name, "quotaShareArn": arn}

    def _update_share(self, request: dict[str, Any]) -> dict[str, Any]:
        found = self._account.share(request["quotaShareArn"])
        refuse(request_rules.share_problems(request))
        if "capacityLimits" in request:
            found = replace(found, limits=_limits(request["capacityLimits"]))
        if sharing := request.get("resourceSharingConfiguration"):
            found = replace(
                found,
                strategy=SharingStrategy(sharing["strategy"]),
                borrow_limit=sharing.get("borrowLimit", UNLIMITED),
            )
        if preemption := request.get("preemptionConfiguration"):
            found = replace(found, preempts_within=preemption["inSharePreemption"] == "ENABLED")
        self._account.shares[found.arn] = replace(found, enabled=_enabled(request, now=found.enabled))
        return {"quotaShareName": found.name, "quotaShareArn": found.arn}

    def _delete_share(self, request: dict[str, Any]) -> dict[str, Any]:
        found = self._account.share(request["quotaShareArn"])
        _refuse_enabled(found.arn, enabled=found.enabled)
        self._end_jobs(found.arn)
        del self._account.shares[found.arn]
        return {}

    def _describe_share(self, request: dict[str, Any]) -> dict[str, Any]:
        return description.share(self._account.share(request["quotaShareArn"]))

    def _list_shares(self, request: dict[str, Any]) -> dict[str, Any]:
        shares = self._account.shares_of(self._account.queue(request["jobQueue"]))
        return description.page([description.share(share) for share in shares], request, member="quotaShares")

    # Tags.

    def _tag(self, request: dict[str, Any]) -> dict[str, Any]:
        arn = request["resourceArn"]
        tags = self._account.tags(arn) | request["tags"]
        refuse(request_rules.tag_problems(tags))
        self._account.set_tags(arn, tags)
        return {}

    def _untag(self, request: dict[str, Any]) -> dict[str, Any]:
        arn, keys = request["resourceArn"], set(request["tagKeys"])
        kept = {key: value for key, value in self._account.tags(arn).items() if key not in keys}
        self._account.set_tags(arn, kept)
        return {}

    def _list_tags(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"tags": self._account.tags(request["resourceArn"])}

    # What they share.

    def _placing_problems(
        self, queue_arn: str, environment: ServiceEnvironment, policy: SchedulingPolicy | None
    ) -> Iterable[str]:
        yield from _unit_problems(environment.limits, policy)
        others = [
            queue
            for queue in self._account.queues.values()
            if queue.environment == environment.arn and queue.arn != queue_arn
        ]
        if others and any([policy, *map(self._account.policy_of, others)]):
            yield f"a service environment with quota shares has one job queue; {environment.name} has {others[0].name}"

    def _refuse_taken(self, arn: str, table: Mapping[str, object], *, most: int | None) -> None:
        if arn in table:
            raise ClientError(f"Object already exists: {arn}")
        if most is not None and len(table) >= most:
            raise ClientError(f"There are {most} already, and AWS Batch allows no more")

    def _described(
        self,
        table: Mapping[str, Any],
        request: Mapping[str, Any],
        *,
        kind: str,
        describe: Callable[[Any], dict[str, Any]],
        member: str,
    ) -> dict[str, Any]:
        """Describe the named resources, or all. Missing ones are left out, as AWS does."""
        named = request.get(member)
        wanted = None if not named else {name if name in table else self._account.arn(kind, name) for name in named}
        found = [describe(each) for arn, each in table.items() if wanted is None or arn in wanted]
        return description.page(found, request, member=member)


def _refuse_enabled(arn: str, *, enabled: bool) -> None:
    if enabled:
        raise ClientError(f"Cannot delete {arn}: its state must be DISABLED first")


def _enabled(request: Mapping[str, Any], *, now: bool = True) -> bool:
    return request["state"] == "ENABLED" if "state" in request else now


def _limits(given: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    return {limit["capacityUnit"]: limit["maxCapacity"] for limit in given}


def _unit_problems(limits: Mapping[str, int], policy: SchedulingPolicy | None) -> Iterable[str]:
    if policy is not None and NUM_INSTANCES in limits:
        yield f"a service environment whose queue has quota shares has limits by instance type, not by {NUM_INSTANCES}"
    if policy is None and NUM_INSTANCES not in limits:
        yield f"a service environment whose queue has no quota shares has one limit, by {NUM_INSTANCES}"
