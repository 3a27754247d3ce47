"""What passed the rules is not judged again; anything else is, and what failed them always."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.validated_inputs import REPORT, Sources, ValidatedInputs, found_nothing

from .conftest import ROOT

TEXT = st.text(max_size=8)
SOURCES = st.dictionaries(TEXT, st.binary(max_size=8), max_size=4).map(lambda content: Sources(content=content))
CONTEXT = st.dictionaries(TEXT, st.none() | st.booleans() | TEXT | st.lists(TEXT, max_size=2), max_size=4)
ENVIRONMENT = st.fixed_dictionaries({}, optional={"CDK_DEFAULT_ACCOUNT": TEXT, "CDK_DEFAULT_REGION": TEXT})


@given(st.tuples(SOURCES, CONTEXT, ENVIRONMENT), st.tuples(SOURCES, CONTEXT, ENVIRONMENT))
def test_inputs_have_the_same_digest_exactly_when_they_are_the_same(
    one: tuple[Sources, dict[str, Any], dict[str, str]], other: tuple[Sources, dict[str, Any], dict[str, str]]
) -> None:
    digests = [
        sources.digest(context=context, environment=environment) for sources, context, environment in (one, other)
    ]
    assert (digests[0] == digests[1]) == (one == other)
    sources, context, environment = one
    again = Sources(content=dict(reversed(list(sources.content.items()))))
    assert digests[0] == again.digest(
        context=dict(reversed(context.items())), environment={**environment, "TERM": "other"}
    )


def test_a_new_version_of_a_library_is_a_new_input(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = Sources(content={})
    digests = {sources.digest(context={}, environment={})}
    for updated in ("aws-cdk-lib", "cdk-nag", "constructs"):

        def version(name: str, updated: str = updated) -> str:
            return "999" if name == updated else metadata.version(name)

        monkeypatch.setattr("stacks.validated_inputs.version", version)
        digests.add(sources.digest(context={}, environment={}))
    assert len(digests) == 4


@pytest.mark.parametrize(
    "path",
    [
        "app.py",
        "cdk.json",
        "locks/lambda.txt",
        "stacks/deployment.py",
        "constructs/spotkeep_constructs/run_table.py",
        "training/spotkeep_fleet/user_data.py",
    ],
)
def test_what_shapes_the_templates_is_read(checkout: Path, path: str) -> None:
    before = Sources.read(checkout)
    changed = checkout / path
    original = changed.read_bytes()
    changed.write_bytes(original + b"\n")
    assert Sources.read(checkout) != before
    changed.write_bytes(original)
    assert Sources.read(checkout) == before


def test_a_new_module_is_read_and_its_byte_code_is_not(checkout: Path) -> None:
    before = Sources.read(checkout)
    cache = checkout / "stacks" / "__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / "more.pyc").write_bytes(b"")
    assert Sources.read(checkout) == before
    module = checkout / "stacks" / "more.py"
    module.write_bytes(b"")
    assert Sources.read(checkout) != before
    module.unlink()


@pytest.mark.parametrize("content", ["", "0" * 63, "1" * 64, "0" * 65])
def test_a_damaged_record_vouches_for_nothing_until_it_is_written_again(tmp_path: Path, content: str) -> None:
    digest = "0" * 64
    known = ValidatedInputs(tmp_path / "validated")
    assert digest not in known
    known.add(digest)
    assert digest in known
    (tmp_path / "validated" / digest).write_text(content)
    assert digest not in known
    known.add(digest)
    assert digest in known


def test_the_oldest_are_forgotten(tmp_path: Path) -> None:
    known = ValidatedInputs(tmp_path, limit=3)
    digests = [str(number) * 64 for number in range(5)]
    for age, digest in enumerate(digests):
        known.add(digest)
        os.utime(tmp_path / digest, (age, age))
    assert [digest in known for digest in digests] == [False, False, True, True, True]


WARNING = {"pluginName": "AwsSolutions", "conclusion": "success", "violations": [{"severity": "warning"}]}


@pytest.mark.parametrize(
    ("report", "clean"),
    [
        ('{"pluginReports": []}', True),
        (json.dumps({"pluginReports": [WARNING]}), False),
        ('{"pluginReports"', False),
        ("[]", False),
        ("{}", False),
        (None, False),
    ],
)
def test_only_a_report_without_findings_counts_as_passed(tmp_path: Path, report: str | None, clean: bool) -> None:
    if report is not None:
        (tmp_path / REPORT).write_text(report)
    assert found_nothing(tmp_path / REPORT) is clean


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout's sources, with its tools and built layers."""
    copy = tmp_path_factory.mktemp("checkout")
    for folder in ("stacks", "constructs", "lambda", "training", "locks"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("app.py", "cdk.json"):
        shutil.copy(ROOT / name, copy / name)
    (copy / ".venv").symlink_to(ROOT / ".venv")
    (copy / ".spotkeep").mkdir()
    for kept in ("cache", "layers"):
        (ROOT / ".spotkeep" / kept).mkdir(parents=True, exist_ok=True)
        (copy / ".spotkeep" / kept).symlink_to(ROOT / ".spotkeep" / kept)
    return copy


Synth = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cdk_synth(checkout: Path, tmp_path: Path) -> Synth:
    """The real command line on the copy; nothing is remembered at first."""
    shutil.rmtree(checkout / ".spotkeep" / "validated", ignore_errors=True)
    tools = Path(sys.executable).parent

    def run(output: Path, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(tools / "cdk"), "synth", "--quiet", "--ci", "--output", str(output), "-c", "lambda_platform=host"]
            + list(options),
            cwd=checkout,
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
                "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
                # The installed packages are this checkout's own; the copy's come first.
                "PYTHONPATH": str(checkout / "constructs"),
                "HOME": str(tmp_path),
                "CDK_HOME": str(tmp_path / "cdk"),
                "CDK_DISABLE_VERSION_CHECK": "1",
                "AWS_EC2_METADATA_DISABLED": "true",
            },
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def templates_of(assembly: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in assembly.glob("*.template.json")}


@pytest.mark.long
def test_what_passed_is_not_judged_again_and_what_fails_a_rule_fails_it_each_time(
    tmp_path: Path, checkout: Path, cdk_synth: Synth
) -> None:
    """One story, because each synth takes seconds, and each that is judged twice as many."""
    for name in ("first", "second"):
        ended = cdk_synth(tmp_path / name)
        assert ended.returncode == 0, ended.stderr
    assert len(templates_of(tmp_path / "first")) == 4
    assert templates_of(tmp_path / "first") == templates_of(tmp_path / "second")
    assert found_nothing(tmp_path / "first" / REPORT)
    assert not (tmp_path / "second" / REPORT).exists()

    known = set((checkout / ".spotkeep" / "validated").iterdir())
    stack = checkout / "stacks" / "storage_stack.py"
    original = stack.read_text()
    stack.write_text(
        original + '        from aws_cdk import aws_sqs\n\n        aws_sqs.Queue(self, "Open", enforce_ssl=False)\n'
    )
    for _ in range(2):
        ended = cdk_synth(tmp_path / "second")
        assert ended.returncode != 0
        assert "AwsSolutions-SQS4" in ended.stdout + ended.stderr
    assert set((checkout / ".spotkeep" / "validated").iterdir()) == known
    stack.write_text(original)

    ended = cdk_synth(tmp_path / "second", "-c", "validation=always")
    assert ended.returncode == 0, ended.stderr
    assert found_nothing(tmp_path / "second" / REPORT)
    ended = cdk_synth(tmp_path / "second")
    assert ended.returncode == 0, ended.stderr
    assert not (tmp_path / "second" / REPORT).exists()
