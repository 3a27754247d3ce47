"""Checks of a request's secrets that need AWS's answers.

They find a secret that is missing or deleted, a KMS key that jobs may not use, and subnets of SageMaker's jobs from
which nothing leads to AWS Secrets Manager. `backends.ec2.checks` judges the subnets of instances. A failed call stops
no launch, because each start of the job reads the secret and reports what is wrong. The launcher reads no value.

Sources: DescribeSecret (AWS Secrets Manager API reference). "Secret encryption and decryption in AWS Secrets Manager"
(AWS Secrets Manager user guide).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from spotkeep_fleet.secret_references import SecretReference
from spotkeep_jobs.backends.ec2.checks import Checked, training_network_problems
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.secrets import is_named, references_of
from spotkeep_jobs.errors import AwsCallError, AwsRefusedError, Problem
from spotkeep_jobs.temporary_errors import typed_errors

if TYPE_CHECKING:
    from mypy_boto3_kms import KMSClient

_MISSING: Final = "ResourceNotFoundException"
_OF_AWS: Final = "alias/aws/secretsmanager"
"""The key that encrypts a secret for which no key is named. Principals of the secret's account may use it."""


@dataclass(frozen=True, kw_only=True)
class SecretChecks:
    """Asks AWS about the secrets of a request.

    Attributes:
        secrets_manager: Returns AWS Secrets Manager's client.
        kms: Returns AWS KMS's client.
        ec2: EC2, to ask for subnets.
        secrets: The deployment's setting `secrets`.
        key_arns: The deployment's setting `secret_key_arns`.
        training_subnet_ids: The subnets of SageMaker's jobs, empty for SageMaker's own network.
        region: The region of the deployment.
    """

    secrets_manager: Callable[[], Any]
    kms: Callable[[], KMSClient]
    ec2: Ec2Api
    secrets: Sequence[str]
    key_arns: Sequence[str]
    training_subnet_ids: Sequence[str]
    region: str

    def check(self, request: JobRequest) -> Checked:
        """Judge the secrets of a request.

        Args:
            request: The parsed request. Other checks may have refused it already.
        """
        places: dict[str, str] = {}
        for place, reference in references_of(request).items():
            # IAM denies all others, and the document's rule has refused them.
            if is_named(reference, self.secrets, region=self.region):
                places.setdefault(reference.secret, place)
        results = [self._secret(place, secret) for secret, place in places.items()]
        if places and request.backend == "sagemaker" and self.training_subnet_ids:
            results.append(self._network())
        return Checked(
            problems=tuple(problem for each in results for problem in each.problems),
            warnings=tuple(dict.fromkeys(warning for each in results for warning in each.warnings)),
        )

    def _network(self) -> Checked:
        try:
            subnets = self.ec2.subnets(tuple(self.training_subnet_ids))
        except AwsCallError as error:
            return Checked(warnings=(f"EC2 could not be asked what leads out of the jobs' subnets ({error.code}).",))
        # SageMaker gives a job's network interfaces no public addresses.
        return Checked(
            problems=tuple(training_network_problems([replace(each, public_addresses=False) for each in subnets]))
        )

    def _secret(self, place: str, secret: str) -> Checked:
        try:
            with typed_errors("describe_secret"):
                described = self.secrets_manager().describe_secret(SecretId=secret)
        except AwsRefusedError as error:
            if error.code == _MISSING:
                return Checked(problems=(_missing(place, secret, region=self.region),))
            return Checked(warnings=(f"{place} could not be looked at: {error.code}. The job needs to read it.",))
        except AwsCallError as error:
            return Checked(warnings=(f"AWS Secrets Manager could not be asked about secrets ({error.code}).",))
        return Checked(problems=tuple(self._problems(place, secret, described)))

    def _problems(self, place: str, secret: str, described: Any) -> Iterator[Problem]:
        if described.get("DeletedDate") is not None:
            yield Problem(
                field=place,
                found=repr(secret),
                problem="is a secret that is scheduled for deletion, which nothing can read",
                fix=f"Restore it: aws secretsmanager restore-secret --secret-id {secret}. Or name another.",
            )
        key = described.get("KmsKeyId")
        if key and not key.endswith(_OF_AWS) and not self._may_use(key):
            yield Problem(
                field=place,
                found=f"{secret!r}, encrypted with {key}",
                problem="is encrypted with a KMS key that jobs may not use",
                fix="Name the ARN of the key in the deployment's setting secret_key_arns, and deploy again. The key's "
                "policy must let the account's roles use it, too.",
            )

    def _may_use(self, key: str) -> bool:
        """Return True where the setting names a key, which AWS calls by its ARN, its id or an alias."""
        named = tuple(self.key_arns)
        if key in named or any(arn.endswith(f":key/{key}") for arn in named):
            return True
        if not named or "alias/" not in key:
            return False
        try:
            with typed_errors("describe_key"):
                return self.kms().describe_key(KeyId=key)["KeyMetadata"]["Arn"] in named
        except AwsRefusedError:
            return False  # The launcher may describe those alone that the setting names.
        except AwsCallError:
            return True  # The job's start finds it out.


def _missing(place: str, secret: str, *, region: str) -> Problem:
    reference = SecretReference(secret)
    return Problem(
        field=place,
        found=repr(secret),
        problem=f"is a secret that is not in {region}",
        fix=f"Create it: aws secretsmanager create-secret --region {region} --name {reference.name} --secret-string "
        "file://<file with the value>. Or correct the name.",
    )
