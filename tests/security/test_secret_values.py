"""The value of a secret is in the environment of the script, and in nothing that Spotkeep writes, sends or prints.

Who: who reads records, events, notifications, plans, reports, the processes or the files of a machine.
What they would gain: a token or a password of the team.

Each job is launched by the launcher, run by the real runner or the real agent, and ended by the controller. Its script
fails, and quotes the value. So the script's own line is the only place of the value, beside its environment.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotkeep_fleet.instance_job import fleet_job_key
from spotkeep_fleet.record import fleet_key
from spotkeep_jobs.backends.secret_checks import SecretChecks
from tests.models.deployment import spec_in
from tests.models.secrets_manager import SecretsManager
from tests.spotkeep.runner.conftest import Job, pyz, start
from tests.spotkeep_agent.cloud import RUN, Cloud
from tests.upgrades.site import Site

__all__ = ["pyz", "start"]

MARKER = "MARKER-6f1e0c"
SCRIPT = """
import os, sys, time
print("ready", flush=True)
while not os.path.exists(os.environ["GO_ON"]):
    time.sleep(0.02)
assert os.environ["HF_TOKEN"] == os.environ["BY_KEY"] and len(os.environ["HF_TOKEN"]) == 13
sys.exit("the script says " + os.environ["HF_TOKEN"])
"""
OF_THE_SCRIPT = "the script says "


@pytest.fixture
def secrets() -> SecretsManager:
    made = SecretsManager()
    made.put("hf", MARKER)
    made.put("keys", json.dumps({"token": MARKER, "other": f"{MARKER}-too"}))
    return made


@pytest.fixture
def site(secrets: SecretsManager) -> Site:
    site = Site()
    named: dict[str, Any] = {
        "secrets_manager": lambda: secrets, "kms": lambda: None, "ec2": None, "secrets": ("hf", "keys"),
        "key_arns": (), "training_subnet_ids": (), "region": "us-east-1",
    }  # fmt: skip
    site.launcher.__dict__["secret_checks"] = SecretChecks(**named)
    site.launcher.__dict__["defaults"] = replace(site.launcher.defaults, secrets=("hf", "keys"))
    return site


def document(go_on: Path, **fields: Any) -> dict[str, Any]:
    return {
        "run": RUN,
        "name": "digits",
        "command": f"python -c '{SCRIPT}'\n",
        "environment": {"GO_ON": str(go_on)},
        "secrets": {"HF_TOKEN": "hf", "BY_KEY": "keys:token::"},
        "notify": ["completed", "failed", "stopped"],
        **fields,
    }


def written_by(site: Site, *answers: Any) -> dict[str, str]:
    """All that the functions have written, sent and answered."""
    account = site.account
    return {
        "the run table": repr(account.dynamodb.items),
        "objects in S3": repr(account.objects.contents),
        "notifications": repr(account.topic.messages),
        "calls of AWS": repr(site.calls),
        "events": repr(account.events),
        "jobs": repr([vars(job) for job in account.jobs.values()]),
        "schedules": repr(vars(account.schedules)),
        "answers": repr(answers),
    }


def processes() -> Iterator[str]:
    """The words of all processes of this machine, as `ps` shows them."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue


@contextmanager
def watched_processes(found: list[str]) -> Iterator[None]:
    """Look at the words of all processes, again and again."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            found.extend(words for words in processes() if "MARKER" in words)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def without_the_scripts_own(lines: str) -> str:
    return "\n".join(line for line in lines.splitlines() if OF_THE_SCRIPT not in line)


def marked(places: dict[str, str]) -> list[str]:
    return [place for place, text in places.items() if "MARKER" in text]


def marked_files(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert files
    return [path for path in files if b"MARKER" in path.read_bytes()]


def test_on_sagemaker(
    site: Site,
    secrets: SecretsManager,
    start: Callable[..., Job],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    in_ps: list[str] = []
    go_on = tmp_path / "go-on"
    asked = document(go_on)
    answers = [site.asks({"action": "validate", **asked}), site.asks(asked)]
    [(name, described)] = site.account.jobs.items()
    spec = spec_in(described.request, objects=site.account.objects)
    assert spec.secrets == asked["secrets"]
    fields = {name: getattr(spec, name) for name in ("environment", "secrets")}
    with secrets.served() as url, watched_processes(in_ps):
        keys = {"AWS_ACCESS_KEY_ID": "AKIAOFTHEJOB", "AWS_SECRET_ACCESS_KEY": "S", "AWS_REGION": "us-east-1"}
        job = start(spec.command, spec=fields, AWS_ENDPOINT_URL=url, **keys)
        job.wait_for_line("ready")
        go_on.touch()
        assert job.finish() == 1
    assert job.failure is not None
    assert f"{OF_THE_SCRIPT}***" in job.failure
    assert MARKER in job.stderr, "what a script prints is in its log as it is"
    site.account.becomes(name, "Failed", failure=f"AlgorithmError: {job.failure}, exit code: 1")
    site.last_event_comes()
    site.passes()
    answers.append(site.asks({"action": "describe", "run": RUN}))
    places = written_by(site, answers) | {
        "output": without_the_scripts_own(job.stderr + "\n".join(job.lines)),
        "the functions' logs": repr([vars(record) for record in caplog.records]),
    }
    assert "notification sent" in places["the functions' logs"]
    assert f"{OF_THE_SCRIPT}***" in places["notifications"]
    assert '"HF_TOKEN":"hf"' in places["the run table"].replace(" ", "")
    assert not marked(places)
    assert not marked_files(tmp_path)
    assert not in_ps


def test_on_ec2(site: Site, secrets: SecretsManager, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    in_ps: list[str] = []
    cloud, go_on = Cloud(tmp_path), tmp_path / "go-on"
    cloud.secrets = secrets
    asked = document(go_on, backend="ec2", instance_types=["g5.xlarge"])
    answers = [site.asks(asked)]
    ours = {
        key: item for key, item in site.account.dynamodb.items.items() if key in (fleet_key(RUN), fleet_job_key(RUN))
    }
    assert len(ours) == 2
    cloud.dynamodb.items.update(ours)
    try:
        with watched_processes(in_ps):
            instance = cloud.boot("us-east-1a")
            instance.wait_for("ready")
            go_on.touch()
            assert instance.finish() == 0
    finally:
        cloud.close()
    assert secrets.read == {"hf": 1, "keys": 1}
    assert cloud.record.training.failure is not None
    assert f"{OF_THE_SCRIPT}***" in cloud.record.training.failure
    site.account.dynamodb.items[fleet_key(RUN)] = cloud.record_item
    site.passes()
    site.passes()
    answers.append(site.asks({"action": "describe", "run": RUN}))
    places = written_by(site, answers) | {
        "output": without_the_scripts_own("\n".join(instance.lines)),
        "the functions' logs": repr([vars(record) for record in caplog.records]),
        "log": without_the_scripts_own("\n".join(cloud.logged)),
        "the agent's events": repr(cloud.events),
        "the agent's items": repr(cloud.dynamodb.items),
        "the agent's objects": repr(cloud.objects),
    }
    assert f"{OF_THE_SCRIPT}***" in places["notifications"]
    assert not marked(places)
    assert not marked_files(tmp_path)
    assert not in_ps
