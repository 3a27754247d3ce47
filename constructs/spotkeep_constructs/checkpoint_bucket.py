"""The bucket of checkpoints, models, sources and bundles, with its key and its access log."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from spotkeep_constructs.errors import PropertyError
from spotkeep_constructs.statements import allow, together
from spotkeep_fleet.run_prefixes import (
    PREFIXES,
    RUNS_PREFIX,
    SOURCES_PREFIX,
    SPECS_PREFIX,
    TEAMS_PREFIX,
    of_team,
    runs_prefix,
)

BUNDLES_PREFIX = "bundles/"
"""Prefix of the bundles that jobs and instances start with, each under the hash of its content. Nothing removes one."""

_EVERY_RUN = "Runs are named later: everything below the prefix of those that share a role, and nothing beside it."
_ALL_OBJECTS = tuple(f"{prefix}*" for prefix in PREFIXES)
_KNOWN_SPECS = f"{SPECS_PREFIX}*/{'?' * 64}.json"
"""Key of a training spec, by its run and its hash. A role that does not know the content does not find the object."""
UNFINISHED_UPLOAD_DAYS = 7
NONCURRENT_VERSION_DAYS = 7
"""Days for which a replaced or deleted version can be restored."""
ACCESS_LOG_RETENTION_DAYS = 90
"""Days for which the access logs of reads and deletions are kept. A team that needs them longer uses CloudTrail."""


class CheckpointBucket(Construct):
    """A versioned, encrypted bucket that keeps the results of runs.

    A key of its own encrypts it and rotates every year. S3 accepts TLS alone and no public access, and logs every
    access to a second bucket. Replaced and deleted versions stay for a while, so that a deletion which SageMaker
    mirrors from a container can be undone.

    Attributes:
        bucket: The bucket.
        key: The key its objects are encrypted with.
        access_logs: The bucket that receives its access logs. None for an existing bucket, since its owner decides on
            its logs.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - the CDK's own name
        *,
        retention_days: int | None = None,
        keep_on_destroy: bool = True,
        existing: s3.IBucket | None = None,
        key: kms.IKey | None = None,
    ) -> None:
        """Place the bucket.

        Args:
            scope: Parent construct.
            id: Construct id.
            retention_days: Days after which S3 expires an object of a run, counted from its creation, never by default.
            keep_on_destroy: True to keep bucket, key and logs when their stack is deleted.
            existing: A bucket to use as it is, with its own versions, lifecycle and access logs. Without it the
                construct creates one.
            key: The key that encrypts the bucket. Its policy has to leave the choice of principals to IAM, as the CDK's
                default policy does. By default the existing bucket's own key, or a new one.

        Raises:
            PropertyError: A retention was given for an existing bucket, or its key is not known.
        """
        super().__init__(scope, id)
        self.access_logs: s3.IBucket | None = None
        if existing is not None:
            if retention_days is not None:
                raise PropertyError(
                    name="CheckpointBucket.retention_days",
                    problem="cannot be set of a bucket that exists",
                    found=retention_days,
                    fix="Give the bucket a lifecycle rule where it is created, and leave it out here.",
                )
            known = key or existing.encryption_key
            if known is None:
                raise PropertyError(
                    name="CheckpointBucket.existing",
                    problem="has no KMS key that is known here",
                    found=existing.node.path,
                    fix="Encrypt the bucket with a KMS key, and give the key as well if the bucket is imported.",
                )
            self.bucket: s3.IBucket = existing
            self.key: kms.IKey = known
            return
        removal = RemovalPolicy.RETAIN if keep_on_destroy else RemovalPolicy.DESTROY
        self.key = key or kms.Key(
            self,
            "Key",
            description="Encrypts Spotkeep's checkpoints, models and sources",
            enable_key_rotation=True,
            removal_policy=removal,
        )
        self.access_logs = s3.Bucket(
            self,
            "AccessLogs",
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            removal_policy=removal,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="expire-access-logs",
                    expiration=Duration.days(ACCESS_LOG_RETENTION_DAYS),
                    abort_incomplete_multipart_upload_after=Duration.days(UNFINISHED_UPLOAD_DAYS),
                )
            ],
        )
        rules = [
            s3.LifecycleRule(
                id="expire-noncurrent-versions",
                noncurrent_version_expiration=Duration.days(NONCURRENT_VERSION_DAYS),
                expired_object_delete_marker=True,
            ),
            s3.LifecycleRule(
                id="abort-unfinished-uploads",
                abort_incomplete_multipart_upload_after=Duration.days(UNFINISHED_UPLOAD_DAYS),
            ),
        ]
        if retention_days is not None:
            rules += [
                s3.LifecycleRule(id=f"expire-{name}", prefix=prefix, expiration=Duration.days(retention_days))
                for name, prefix in (
                    ("runs", RUNS_PREFIX),
                    ("sources", SOURCES_PREFIX),
                    ("specs", SPECS_PREFIX),
                    ("runs-of-teams", TEAMS_PREFIX),
                )
            ]
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            versioned=True,
            encryption=s3.BucketEncryption.KMS,
            encryption_key=self.key,
            # One data key a bucket and hour instead of a KMS call for each checkpoint file.
            bucket_key_enabled=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            server_access_logs_bucket=self.access_logs,
            server_access_logs_prefix="checkpoints/",
            lifecycle_rules=rules,
            removal_policy=removal,
        )

    def grant_list_runs(self, grantee: iam.IGrantable, *, teams: Sequence[str | None] = (None,)) -> iam.Grant:
        """Let a principal list all objects of runs, and nothing else.

        Args:
            grantee: A role, user or managed policy.
            teams: The isolated teams that own the runs, with None for the runs of all other teams.
        """
        return allow(
            grantee,
            actions=["s3:ListBucket"],
            resources=[self.bucket.bucket_arn],
            conditions=_listing(*_ALL_OBJECTS, teams=teams),
        )

    def grant_read_runs(self, grantee: iam.IGrantable, *, team: str | None = None) -> iam.Grant:
        """Let a principal list the objects of runs, and read sources and the results of jobs.

        Args:
            grantee: A role, user or managed policy.
            team: The isolated team that owns the runs, or None for the runs of all other teams.
        """
        return together(
            self.grant_list_runs(grantee, teams=[team]),
            self._grant_get(grantee, RUNS_PREFIX, SOURCES_PREFIX, team=team),
            self._allow_key(grantee, ["kms:Decrypt"]),
        )

    def grant_train(self, grantee: iam.IGrantable, *, team: str | None = None) -> iam.Grant:
        """Let a training job read the stored objects of runs, and write and delete results.

        SageMaker mirrors deletions, too.

        Args:
            grantee: The role jobs run with.
            team: The isolated team that owns the runs, or None for the runs of all other teams.
        """
        return together(
            allow(
                grantee,
                actions=["s3:ListBucket"],
                resources=[self.bucket.bucket_arn],
                conditions=_listing(f"{RUNS_PREFIX}*", f"{SOURCES_PREFIX}*", teams=[team]),
            ),
            self._grant_get(grantee, RUNS_PREFIX, SOURCES_PREFIX, team=team),
            self._allow_key(grantee, ["kms:Decrypt"]),
            # Source: "How to use SageMaker AI execution roles", section CreateTrainingJob.
            allow(grantee, actions=["s3:GetBucketLocation"], resources=[self.bucket.bucket_arn]),
            # Not sources: no training changes what another one will execute.
            allow(
                grantee,
                actions=["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"],
                resources=[self._objects(f"{runs_prefix(team)}*")],
                wildcard="Runs are named later: checkpoints and output of every run, and nothing that one executes.",
            ),
            # Encrypt: SageMaker asks for it where an output key is named.
            # Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_OutputDataConfig.html (KmsKeyId)
            self._allow_key(grantee, ["kms:Encrypt", "kms:GenerateDataKey"]),
        )

    def grant_list_versions(self, grantee: iam.IGrantable, *, team: str | None = None) -> iam.Grant:
        """Let a principal list the object versions of runs in the bucket, which show their storage cost.

        Args:
            grantee: A role, user or managed policy.
            team: The isolated team that owns the runs, or None for the runs of all other teams.
        """
        return allow(
            grantee,
            actions=["s3:ListBucketVersions"],
            resources=[self.bucket.bucket_arn],
            conditions=_listing(*_ALL_OBJECTS, teams=[team]),
        )

    def grant_train_one_run(self, grantee: iam.IGrantable, *, runs: str, run: str, checkpoints: str) -> iam.Grant:
        """Let a principal write the checkpoints and the output of one run, and read the inputs its job may name.

        A job names sources and channels below any run that its team may read, so reading is limited to these runs.
        Sources are read-only. So no training changes the code of another training, or of its own next instance.

        Args:
            grantee: The role.
            runs: The prefix of the runs that it may read, which may hold policy variables like the other two.
            run: The run's id.
            checkpoints: The prefix of its checkpoints.
        """
        return together(
            allow(
                grantee,
                actions=["s3:ListBucket"],
                resources=[self.bucket.bucket_arn],
                conditions={"StringLike": {"s3:prefix": [f"{runs}/*"]}},
            ),
            allow(
                grantee,
                actions=["s3:GetObject"],
                # No run of an isolated team is trained on an instance: sources are those of everybody else.
                resources=[self._objects(f"{runs}/*"), self._objects(f"{SOURCES_PREFIX}*")],
                wildcard="A job names sources and channels of other runs of its team.",
            ),
            allow(
                grantee,
                actions=["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"],
                resources=[self._objects(f"{checkpoints}/*"), self._objects(f"{runs}/{run}/output/*")],
                wildcard="Checkpoints and output of the one run that the session's tags name.",
            ),
            # What an interrupted upload left is found by it; S3 knows no prefix for it in IAM.
            allow(grantee, actions=["s3:ListBucketMultipartUploads"], resources=[self.bucket.bucket_arn]),
            self._allow_key(grantee, ["kms:Decrypt", "kms:GenerateDataKey"]),
        )

    def grant_put_sources(self, grantee: iam.IGrantable, *, team: str | None = None) -> iam.Grant:
        """Let a principal upload the source archive of a run, and nothing else.

        Args:
            grantee: A role, user or managed policy.
            team: The isolated team that owns the runs, or None for the runs of all other teams.
        """
        writing = allow(
            grantee,
            actions=["s3:PutObject", "s3:AbortMultipartUpload"],
            resources=[self._objects(f"{of_team(SOURCES_PREFIX, team)}*")],
            wildcard="Runs are named later: the sources of every run, and no other object of theirs.",
        )
        return together(writing, self._allow_key(grantee, ["kms:GenerateDataKey"]))

    def grant_read_specs(self, grantee: iam.IGrantable, *, team: str | None = None) -> iam.Grant:
        """Let a training job read its training spec, by its whole key alone.

        Its variables may be secrets, and jobs share a role.

        Args:
            grantee: The role jobs run with.
            team: The isolated team that owns the runs, or None for the runs of all other teams.
        """
        listing = allow(
            grantee,
            actions=["s3:ListBucket"],
            resources=[self.bucket.bucket_arn],
            conditions=_listing(_KNOWN_SPECS, teams=[team]),
        )
        return together(listing, self._grant_get(grantee, SPECS_PREFIX, team=team))

    def grant_put_specs(self, grantee: iam.IGrantable, *, teams: Sequence[str]) -> iam.Grant:
        """Let a principal put the training specs of jobs.

        Args:
            grantee: The role of the function that launches.
            teams: The isolated teams, beside all others.
        """
        writing = allow(
            grantee,
            actions=["s3:PutObject"],
            resources=[self._objects(f"{of_team(SPECS_PREFIX, team)}*") for team in (None, *teams)],
            wildcard="Runs are named later: the specs of every run, and no other object of theirs.",
        )
        return together(writing, self._allow_key(grantee, ["kms:GenerateDataKey"]))

    def grant_read_bundles(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal list and read the bundle of every deployment so far.

        Args:
            grantee: The role that jobs run with.
        """
        return together(
            allow(
                grantee,
                actions=["s3:ListBucket"],
                resources=[self.bucket.bucket_arn],
                conditions={"StringLike": {"s3:prefix": [f"{BUNDLES_PREFIX}*"]}},
            ),
            self.grant_fetch_bundles(grantee),
        )

    def grant_fetch_bundles(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal fetch the bundle of every deployment so far, by its address.

        Args:
            grantee: The role that instances run with.
        """
        return together(
            allow(
                grantee,
                actions=["s3:GetObject"],
                resources=[self._objects(BUNDLES_PREFIX + "*")],
                wildcard="A run that outlives a deployment starts again with the bundle that it was launched with.",
            ),
            self._allow_key(grantee, ["kms:Decrypt"]),
        )

    def grant_put_bundle(self, grantee: iam.IGrantable, *, key: str) -> iam.Grant:
        """Let a principal put one bundle, and see which are there.

        Args:
            grantee: The role of a function that launches.
            key: The bundle's key.
        """
        return together(
            allow(grantee, actions=["s3:PutObject"], resources=[self._objects(key)]),
            allow(
                grantee,
                actions=["s3:GetObject"],
                resources=[self._objects(BUNDLES_PREFIX + "*")],
                wildcard="While it is updated, a function of before still has to see that its own bundle is there.",
            ),
            self._allow_key(grantee, ["kms:GenerateDataKey"]),
        )

    def grant_encrypt_volumes(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let SageMaker, called by a principal, encrypt a job's storage volume with the bucket's key.

        Args:
            grantee: The role that creates jobs, and the one jobs run with.
        """
        return together(
            allow(grantee, actions=["kms:DescribeKey"], resources=[self.key.key_arn]),
            allow(
                grantee,
                actions=["kms:CreateGrant"],
                resources=[self.key.key_arn],
                conditions={"Bool": {"kms:GrantIsForAWSResource": "true"}},
            ),
        )

    def _grant_get(self, grantee: iam.IGrantable, *prefixes: str, team: str | None) -> iam.Grant:
        return allow(
            grantee,
            actions=["s3:GetObject"],
            resources=[self._objects(f"{of_team(prefix, team)}*") for prefix in prefixes],
            wildcard=_EVERY_RUN,
        )

    def _objects(self, pattern: str) -> str:
        return self.bucket.arn_for_objects(pattern)

    def _allow_key(self, grantee: iam.IGrantable, actions: list[str]) -> iam.Grant:
        via_s3 = f"s3.{Stack.of(self).region}.{Aws.URL_SUFFIX}"
        return allow(
            grantee,
            actions=actions,
            resources=[self.key.key_arn],
            conditions={"StringEquals": {"kms:ViaService": via_s3}},
        )


def _listing(*patterns: str, teams: Sequence[str | None]) -> dict[str, dict[str, list[str]]]:
    """Return the condition that the prefix of a listing is one of these, of one of the teams."""
    return {"StringLike": {"s3:prefix": [of_team(pattern, team) for team in teams for pattern in patterns]}}
