"""The answers of commands that change something, for programs. Fixture `spotkeep` compares them with their schemas."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.spotkeep_cli.commands.test_pool import OLD, a_pool


@pytest.mark.parametrize(
    ("world", "command"),
    [
        ("failed", "resume digits -yd"),
        ("searched", "pause digits-sweep -y"),
        ("searched", "launch sweep.yaml -yd"),
        ("cities", "schedules rm demand-nightly -y"),
        ("warm", f"pool stop {OLD} -y"),
        ("warm", f"pool extend {OLD} 15m"),
    ],
)
def test_an_answer_is_json(
    world: str, command: str, spotkeep: Any, deployment: Any, make: Any, request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    request.getfixturevalue(world)
    job = "name: s\ncommand: python train.py\nsource: .\nsweep: {trials: [{a: 1}, {a: 2}]}\n"
    (tmp_path / "sweep.yaml").write_text(job)
    over = a_pool(make.now, state="ENDED", end_reason="STOPPED_BY_USER", idle_seconds=720)
    longer = a_pool(make.now, keep_alive_seconds=2700, kept_until=(make.now + timedelta(minutes=33)).isoformat())
    deployment.answers["stop-pool"] = {"ok": True, "run": OLD, "pool": over}
    deployment.answers["extend-pool"] = {"ok": True, "run": OLD, "pool": longer}
    deployment.answers["remove-schedule"] = {"ok": True, "schedule": "demand-nightly"}
    result = spotkeep(*command.split(), "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["ok"] is True
