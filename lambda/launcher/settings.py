"""The launcher's settings, read once from the environment that its construct sets."""

from __future__ import annotations

from spotkeep_jobs.backends.sagemaker.request import JobPlatform
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.functions.environment import LauncherEnvironment
from spotkeep_jobs.pools.scheduler_api import ScheduleTarget
from spotkeep_jobs.runs.callers import CallerRules


class LauncherSettings(LauncherEnvironment):
    """The environment, and what follows from it."""

    @property
    def callers(self) -> CallerRules | None:
        """What callers may name and act on; None where this deployment does not verify who calls."""
        if not self.verify_callers:
            return None
        return CallerRules(team_members=self.team_members, administrators=self.administrators)

    @property
    def schedule_target(self) -> ScheduleTarget:
        """Where the schedules of documents live and what they do."""
        return ScheduleTarget(
            group=self.schedule_group,
            function_arn=self.schedule_function_arn,
            role_arn=self.schedule_role_arn,
            dead_letter_arn=self.schedule_dead_letter_arn,
        )

    @property
    def team_role_arns(self) -> dict[str, str]:
        """The ARN of each team's role: beside the execution role, which has no path either."""
        beside, _, _ = self.execution_role_arn.rpartition("/")
        return {team: f"{beside}/{role}" for team, role in self.team_roles.items()}

    @property
    def platform(self) -> JobPlatform:
        """What this deployment gives every training job."""
        return JobPlatform(
            deployment=self.deployment,
            checkpoint_bucket=self.checkpoint_bucket,
            execution_role_arn=self.execution_role_arn,
            training_bundle_uri=self.training_bundle_uri,
            volume_kms_key_arn=self.volume_kms_key_arn,
            subnet_ids=self.subnet_ids,
            security_group_ids=self.security_group_ids,
            team_role_arns=self.team_role_arns,
        )

    @property
    def defaults(self) -> DeploymentDefaults:
        """What this deployment fills into a document and insists on."""
        return DeploymentDefaults(
            image=self.default_image,
            instance_type=self.default_instance_type,
            checkpoint_bucket=self.checkpoint_bucket,
            data_locations=self.data_locations,
            mlflow_arns=self.mlflow_arns,
            max_run_limit_seconds=self.max_run_limit_seconds,
            max_keep_alive_seconds=self.max_keep_alive_seconds,
            isolated_teams=tuple(sorted(self.team_roles)),
            teams=tuple(sorted({*self.team_roles, *self.team_members})),
            limits=self.spending_limits,
            shells=self.shells,
            queues=self.queues,
            training_network=bool(self.subnet_ids),
            fleet_instance_types=None if self.launch_template_id is None else self.fleet_instance_types,
        )
