"""An object, or another resource, with a name that a policy's wildcard takes for what it does not mean.

Who: a user of the deployment, or a training script, with the role of its job.
With what: a key such as `runs/victim/checkpoints/source/model.pt`. In a policy a `*` stands for any characters, slashes
and colons included, so `runs/*/source/*` stands for this key as well.
What they would gain: another run's checkpoints and output replaced by who may only upload sources; a source replaced by
who may only write results; a file put beside a source or beside a spec, into the channel of another's job.

What each statement means is written here a second time, by places and not by patterns.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.iam.patterns import read_pattern
from tests.infrastructure.conftest import SETTINGS, SharedDirectory, templates_of

from .policies import ACCOUNT, REGION, Context, Policies

HASH: Final = "0123456789abcdef" * 4
TEAMS: Final = ("vision", "speech")


@pytest.fixture(params=sorted(SETTINGS), scope="module")
def every_policies(request: pytest.FixtureRequest, shared_directory: SharedDirectory) -> Policies:
    """The policies of each of the deployments whose templates are tested."""
    return Policies(templates_of(shared_directory, request.param))


# Where each kind of object is

PLACES: Final = {
    "results": "runs/{run}/checkpoints/{file} runs/{run}/output/{file}",
    "source": "sources/{run}/{file}",
    "specs": "specs/{run}/{file}",
}
"""The keys of a run's objects, by what they are. Those of an isolated team's begin with `teams/<team>/`."""
HOSTILE: Final = [
    f"{HASH}.tar.gz",
    f"{HASH}.json",
    *(f"{folder}/{HASH}.json" for folder in ("runs", "sources", "source", "specs", "checkpoints", "output")),
    "x/checkpoints/y/source/z",
    f"{HASH}.tar.gz/checkpoints/x",
    "../../sources/a/b",
]
"""Names of objects below a prefix: a client that may write there chooses them."""


def keys_of(kind: str, *, team: str | None) -> Iterator[str]:
    begin = "" if team is None else f"teams/{team}/"
    for form in PLACES[kind].split():
        for file in HOSTILE:
            yield begin + form.format(run="victim", file=file)


@dataclass(frozen=True)
class Principal:
    """What one may do with the objects of runs.

    Attributes:
        named: How its logical id starts.
        team: The isolated team that it is of; None for everybody else.
        writes: The kinds of objects that it puts.
        reads: Those that it gets.
        context: The tags of its session.
    """

    named: str
    team: str | None = None
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    context: tuple[tuple[str, str], ...] = ()


SESSION: Final = tuple(
    (f"aws:PrincipalTag/{name}", value)
    for name, value in {"run": "other", "runs": "runs", "checkpoints": "runs/other/checkpoints"}.items()
)
EVERYTHING: Final = tuple(PLACES)
JOBS: Final = {"writes": ("results",), "reads": EVERYTHING}
USERS: Final = {"writes": ("source",), "reads": ("results", "source")}
PRINCIPALS: Final = (
    Principal("ExecutionRoleDefaultPolicy", **JOBS),
    Principal("UsersPolicy", **USERS),
    Principal("RunRole", reads=("results", "source"), context=SESSION),
    Principal("InstanceRole"),
    Principal("ControllerRole"),
)
OF_TEAMS: Final = tuple(
    principal
    for team in TEAMS
    for principal in (
        Principal(f"ExecutionRole{team}", team=team, **JOBS),
        Principal(f"Users{team}Policy", team=team, **USERS),
    )
)
CONTEXT: Final = {"aws:RequestedRegion": REGION, "kms:ViaService": f"s3.{REGION}.amazonaws.com"}


def check(policies: Policies, principal: Principal) -> None:
    bucket = policies.arn("AWS::S3::Bucket", named="CheckpointsBucket")
    context: Context = {**CONTEXT, **dict(principal.context)}
    for kind, team in itertools.product(PLACES, (None, *TEAMS)):
        own = team == principal.team
        for key in keys_of(kind, team=team):
            for action, kinds in {
                "s3:PutObject": principal.writes,
                "s3:AbortMultipartUpload": principal.writes,
                "s3:GetObject": principal.reads,
            }.items():
                allowed = policies.allows(principal.named, action, f"{bucket}/{key}", context)
                assert allowed is (own and kind in kinds), (principal.named, action, key)
            if not (own and principal.writes == ("results",) and kind == "results"):
                assert not policies.allows(principal.named, "s3:DeleteObject", f"{bucket}/{key}", context), key


@pytest.mark.parametrize("principal", [*PRINCIPALS, *OF_TEAMS], ids=lambda each: each.named)
def test_no_name_of_an_object_makes_it_one_of_another_kind(
    policies_with_everything: Policies, principal: Principal
) -> None:
    check(policies_with_everything, principal)


def test_the_launcher_writes_specs_alone(policies_with_everything: Policies) -> None:
    bucket = policies_with_everything.arn("AWS::S3::Bucket", named="CheckpointsBucket")
    for kind, team in itertools.product(PLACES, (None, *TEAMS)):
        for key in keys_of(kind, team=team):
            allowed = policies_with_everything.allows("LauncherRole", "s3:PutObject", f"{bucket}/{key}", CONTEXT)
            assert allowed is (kind == "specs"), key


# What a job reads beside its request may be secret: other jobs of its role do not find it


@pytest.mark.parametrize(
    "principal",
    [each for each in (*PRINCIPALS, *OF_TEAMS) if each.named.startswith("ExecutionRole")],
    ids=lambda each: each.named,
)
def test_a_script_finds_no_spec_whose_content_it_does_not_know(
    policies_with_everything: Policies, principal: Principal
) -> None:
    """It may list by the whole key alone, which SageMaker does for the channel of the job's own file."""
    bucket = policies_with_everything.arn("AWS::S3::Bucket", named="CheckpointsBucket")
    begin = "" if principal.team is None else f"teams/{principal.team}/"
    key = f"{begin}specs/victim/{HASH}.json"
    listed = {
        prefix
        for prefix in ("", *(key[:length] for length in range(1, len(key) + 1)), f"{key}/")
        if policies_with_everything.allows(principal.named, "s3:ListBucket", bucket, {**CONTEXT, "s3:prefix": prefix})
    }
    assert listed == {key}


# Every other pattern with something after a wildcard

MEANINGS: Final = {
    "any account's repository of the region": (
        re.compile(r"arn:aws:ecr:[a-z0-9-]+:\*:repository/\*"),
        re.compile(r"arn:aws:ecr:(us-west-1|eu-central-2):.*:repository/.*", re.DOTALL),
    ),
    "one secret by its name, whatever six characters AWS adds to it": (
        re.compile(r"arn:aws:secretsmanager:[a-z0-9-]+:\d{12}:secret:[\w/+=.@-]+-\?{6}"),
        re.compile(r"arn:aws:secretsmanager:us-west-1:\d{12}:secret:huggingface-token-.{6}", re.DOTALL),
    ),
    "a whole key of a spec": (
        re.compile(r"(teams/[a-z]+/)?specs/\*/\?{64}\.json"),
        re.compile(r"(teams/(vision|speech)/)?specs/.*/.{64}\.json", re.DOTALL),
    ),
}
"""What a pattern with an inner wildcard may look like, and what it may stand for at most: no key of another prefix, no
resource of another kind or region. A new one is added here with its meaning, or, better, avoided by a prefix."""
INNER: Final = re.compile(r"[*?](?!$)")


def test_every_pattern_with_something_after_a_wildcard_has_a_meaning_that_no_value_leaves(
    every_policies: Policies,
) -> None:
    inner = {text for text in every_policies.patterns() if INNER.search(re.sub(r"\$\{[*?$]\}", "", text))}
    for text in inner:
        [meaning] = [means for form, means in MEANINGS.values() if form.fullmatch(text)] or [None]
        assert meaning is not None, f"{text}: what may it stand for? `*` stands for slashes and colons, too"
        pattern = read_pattern(text, wildcards=True, variables=True)
        for value in hostile_values_of(text):
            assert pattern.matches(value, {}), "as it was made"
            assert meaning.fullmatch(value), value


def hostile_values_of(text: str) -> Iterator[str]:
    """What a pattern stands for, with separators, and with names of other places, in the places of its `*`."""
    fills = ("x", "", "a/b", "a:b", "/", "::", ACCOUNT, *HOSTILE, f"{ACCOUNT}:repository/x:repository")
    pieces = text.replace("?", "/").split("*")
    for fill in fills:
        yield fill.join(pieces)


@given(middle=st.text(alphabet="ab/:.", max_size=20), end=st.text(alphabet="ab/:.", max_size=80))
def test_a_key_that_is_no_whole_key_of_a_spec_is_never_listed(middle: str, end: str) -> None:
    """The one inner wildcard of a listing: what it matches ends as a whole key does, so no other key begins with it."""
    pattern = read_pattern(f"specs/*/{'?' * 64}.json", wildcards=True, variables=False)
    prefix = f"specs/{middle}/{end}"
    if pattern.matches(prefix, {}):
        assert prefix.endswith(".json")
        assert len(prefix) >= len(f"specs//{HASH}.json")
