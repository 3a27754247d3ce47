"""Real clients of a local AWS meet the judge that withholds: what it granted is proven, what it withholds is missed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_local import lifecycle
from spotkeep_local.control import permissions
from spotkeep_local.options import ServerOptions
from tests.discarding import discard
from tests.models.granted import make_role
from tests.permissions.control import missed, proofs, start, withhold
from tests.permissions.withheld import WithheldGrant
from tests.spotkeep_local.iam.test_judge import assume, bucket, denied, name, put, statement  # noqa: F401

if TYPE_CHECKING:
    from spotkeep_local.lifecycle import LocalAws


@pytest.fixture(scope="module")
def local_aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    state_dir = tmp_path_factory.mktemp("withholding")
    running = start(state_dir, port=lifecycle.free_port(), options=ServerOptions.fast())
    yield running
    discard(running)


def test_what_was_granted_is_proven_by_what_is_deployed_now(
    local_aws: LocalAws,
    bucket: str,  # noqa: F811
    name: str,  # noqa: F811
    assume: Any,  # noqa: F811
) -> None:
    role = make_role(local_aws, name)
    own = statement("s3:GetObject", resource=f"arn:aws:s3:::{bucket}/runs/a/*")
    put(local_aws, role, own)
    assume(role)("s3").get_object(Bucket=bucket, Key="runs/a/w.bin")
    found = proofs(local_aws)
    (grant,) = [each for each in found.grants if each.identity == name]
    (bound,) = [each for each in found.bounds if each.identity == name]
    assert grant.operations == ("s3.GetObject",)
    assert "is not authorized to perform: s3:GetObject" in (grant.denial or "")
    assert bound.holds
    put(local_aws, role, statement("s3:GetObject", resource=f"arn:aws:s3:::{bucket}/runs/b/*"))
    (grant,) = [each for each in proofs(local_aws).grants if each.identity == name]
    assert (grant.operations, grant.denial) == ((), None)


def test_what_is_withheld_is_missed_once_by_its_role_alone(
    local_aws: LocalAws,
    bucket: str,  # noqa: F811
    name: str,  # noqa: F811
    assume: Any,  # noqa: F811
) -> None:
    s3, another = (assume(make_role(local_aws, each, actions=("s3:GetObject",)))("s3") for each in (name, f"{name}-2"))
    withhold(local_aws, [WithheldGrant(identity=name, statement=f"{name}/granted#0", action="s3:GetObject")])
    another.get_object(Bucket=bucket, Key="runs/a/w.bin")
    error = denied(lambda: s3.get_object(Bucket=bucket, Key="runs/a/w.bin"))
    (missing,) = [each for each in missed(local_aws) if each.grant.identity == name]
    assert error.response["Error"]["Message"] == missing.denial
    (report,) = [each for each in permissions(local_aws) if each.name == name]
    assert [each.action for each in report.denied] == ["s3:GetObject"]
    assert s3.get_object(Bucket=bucket, Key="runs/a/w.bin")["Body"].read() == b"a"
