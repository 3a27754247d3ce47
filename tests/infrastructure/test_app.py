"""app.py as the CDK CLI runs it: one process, no AWS call, one message when a setting is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import aws_cdk
import pytest

from spotkeep_stacks import synthesis

from .conftest import ROOT, context_of_checkout


def run_app(directory: Path, **context: Any) -> subprocess.CompletedProcess[str]:
    # A proxy that answers nothing: any call out of the machine would fail the synth.
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    return subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env={
            **os.environ,
            **nowhere,
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
            "CDK_OUTDIR": str(directory / "cdk.out"),
            "CDK_CONTEXT_JSON": json.dumps({**context_of_checkout(), "aws:cdk:bundling-stacks": [], **context}),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_it_synthesizes_four_stacks_without_an_account_or_a_look_up(tmp_path: Path) -> None:
    ended = run_app(tmp_path, deployment="lab")
    assert ended.returncode == 0, ended.stderr
    manifest = json.loads((tmp_path / "cdk.out" / "manifest.json").read_text())
    assert "missing" not in manifest
    stacks = [
        name for name, artifact in manifest["artifacts"].items() if artifact["type"] == "aws:cloudformation:stack"
    ]
    assert stacks == ["Lab-Storage", "Lab-Compute", "Lab-Jobs", "Lab-Events"]


def test_wrong_settings_end_it_with_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    context = {**context_of_checkout(), "deployment": "Lab!", "drills": "many", "notify_email": "a@example.com"}
    monkeypatch.setattr("aws_cdk.App", partial(aws_cdk.App, context=context, outdir=str(tmp_path / "cdk.out")))
    monkeypatch.setattr("gc.disable", lambda: None)
    monkeypatch.setenv("JSII_NODE", "as it runs already")
    assert synthesis.main(ROOT, judge=False) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("3 wrong settings")
    assert [line.split(":")[0].strip(" -") for line in lines[1:]] == ["deployment", "drills", "notify_email"]
    assert not (tmp_path / "cdk.out" / "manifest.json").exists()


def test_the_app_runs_on_the_checkouts_own_interpreter() -> None:
    assert json.loads((ROOT / "cdk.json").read_text())["app"] == ".venv/bin/python app.py"
