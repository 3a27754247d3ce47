"""The real command as a real process: a terminal, Ctrl-C, a pipe, and a deployment found in a local AWS."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import connection
from pathlib import Path
from typing import Any

import pytest

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.state.encoding import encode_state
from spotkeep_cli.aws.connection import connect
from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.errors import ExitCode, NoConnectionError
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_local.lifecycle import LocalAws
from tests.models.granted import developer_may
from tests.models.run_table import make_run_table, open_run
from tests.spotkeep_cli.conftest import BUCKET, CONNECTION, make_attempt, make_run

SPOTKEEP = str(Path(sys.prefix) / "bin" / "spotkeep")
RUN = "letters-0a1b2c3d"
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9]m")
LAUNCHER = f"""
def handler(event, context):
    if event.get("action"):
        return {{"ok": True, "warnings": [], "run": event.get("run")}}
    return {{"ok": True, "run": "{RUN}", "job_name": "{RUN}-1", "attempt": 1, "replayed": False, "warnings": []}}
"""


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPOTKEEP_", "COLUMNS"))}
    return {**kept, "TERM": "xterm-256color", **more}


@pytest.fixture(scope="module")
def deployed(local_aws: LocalAws) -> Iterator[str]:
    """A deployment that the command line can find: parameter, table, bucket, a small launcher, one run at work."""
    deployment = "cli-test"
    session = local_aws.session()
    session.client("s3").create_bucket(Bucket=BUCKET)
    table = "cli-test-runs"
    make_run_table(session.client("dynamodb"), table)
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("index.py", LAUNCHER)
    session.client("lambda").create_function(
        FunctionName="cli-test-launcher",
        Runtime="python3.13",
        Role=f"arn:aws:iam::{local_aws.account_id}:role/cli-test",
        Handler="index.handler",
        Code={"ZipFile": package.getvalue()},
        Timeout=30,
    )
    connection = CONNECTION.model_dump() | {
        "deployment": deployment,
        "region": local_aws.region,
        "launcher_function": "cli-test-launcher",
        "run_table": table,
        "a_field_of_a_later_version": "is left alone",
    }
    session.client("ssm").put_parameter(Name=f"/{deployment}/connection", Type="String", Value=json.dumps(connection))
    runs = RunTable.of(client=session.client("dynamodb"), table_name=table)
    open_run(runs, run=make_run(RUN, name="letters"), attempt=make_attempt(RUN))
    logs = session.client("logs")
    with suppress(logs.exceptions.ResourceAlreadyExistsException):
        logs.create_log_group(logGroupName="/aws/sagemaker/TrainingJobs")
    stream = {"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamName": f"{RUN}-1/algo-1-1795262400"}
    logs.create_log_stream(**stream)
    now = int(time.time() * 1_000)
    events = [{"timestamp": now + number, "message": f"line {number}"} for number in range(3)]
    logs.put_log_events(**stream, logEvents=events)
    with developer_may(local_aws, "ssm:GetParameter", "s3:*", "dynamodb:*", "lambda:InvokeFunction", "logs:*"):
        yield deployment


@pytest.fixture
def local(local_aws: LocalAws, deployed: str) -> dict[str, str]:
    return {"SPOTKEEP_LOCAL": "1", "SPOTKEEP_DEPLOYMENT": deployed, "SPOTKEEP_LOCAL_STATE": str(local_aws.state_dir)}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("import spotkeep\n")
    (tmp_path / "job.yaml").write_text("name: letters\ncommand: python train.py\nsource: .\n")
    return tmp_path


@pytest.fixture
def saved(local_aws: LocalAws, deployed: str, tmp_path: Path) -> Iterator[Any]:
    """Two checkpoints of the run, in its bucket, the newer one damaged."""
    s3 = local_aws.session().client("s3")
    kept = tmp_path / "kept"
    for step in (10, 20):
        CheckpointDirectory(kept).write(encode_state({"w": bytes(3 * 2**20), "step": step}), step=step)
    data = kept / "step-20" / "data-00000.bin"
    data.write_bytes(b"\x01" + data.read_bytes()[1:])
    prefix = f"runs/{RUN}/checkpoints/"
    for path in sorted(kept.rglob("*.*")):
        s3.upload_file(str(path), BUCKET, f"{prefix}{path.relative_to(kept)}")
    s3.put_object(Bucket=BUCKET, Key=f"{prefix}step-20/data-00000.bin.sagemaker-uploaded", Body=b"")
    yield s3
    for found in s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Contents"]:
        s3.delete_object(Bucket=BUCKET, Key=found["Key"])


@pytest.mark.long
def test_a_runs_checkpoints_are_read_in_s3(
    local: dict[str, str], saved: Any, tmp_path: Path, on_a_terminal: Any
) -> None:
    (tmp_path / "empty").mkdir()
    more = {**local, "TMPDIR": str(tmp_path / "empty")}
    verifying = on_a_terminal("checkpoints", "verify", "letters", cwd=tmp_path, NO_COLOR="1", **more)
    output = verifying.read_until(None)
    assert verifying.process.wait(300) == ExitCode.DAMAGED_CHECKPOINT
    assert "downloading step 20" in output
    assert "step-20/data-00000.bin, bytes 0 to " in output
    assert "A resume takes step 10." in output
    assert "Traceback" not in output
    assert not COLOUR.search(output)
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_name_that_nothing_is_deployed_as_is_reported(local: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOTKEEP_LOCAL_STATE", local["SPOTKEEP_LOCAL_STATE"])
    with pytest.raises(NoConnectionError, match="nothing is deployed to it as 'other'") as failure:
        connect(ConnectionOptions(deployment="other", local=True))
    assert failure.value.hint == "deploy to it: spotkeep local up"


def test_help_does_not_load_what_it_does_not_need(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom spotkeep_cli.main import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "heavy = {'boto3', 'botocore', 'ministack', 'pydantic', 'yaml'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {sorted(heavy)}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.long
def test_a_reader_that_leaves_early_is_no_error(local: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", f"'{SPOTKEEP}' schema | head -n 1"],
        capture_output=True, text=True, cwd=tmp_path, env=environment(**local),
    )  # fmt: skip
    assert done.stdout == "{\n"
    assert "Traceback" not in done.stderr


class Terminal:
    """A command on a pseudo-terminal, 24 lines of 80 columns."""

    def __init__(self, *arguments: str, cwd: Path, **more: str) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [SPOTKEEP, *arguments],
            cwd=cwd, env=environment(COLUMNS="80", LINES="24", **more),
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.output = ""

    def read_until(self, pattern: str | None, *, seconds: float = 300) -> str:
        """Read until the pattern appears, or until the command ends."""
        deadline = time.monotonic() + seconds
        while pattern is None or not re.search(pattern, self.output):
            if not connection.wait([self._ours], max(0.0, deadline - time.monotonic())):
                raise AssertionError(f"no {pattern!r} in {self.output!r}")
            try:
                content = os.read(self._ours, 4096)
            except OSError:  # Linux: the other end is closed
                content = b""
            if not content:
                assert pattern is None, f"ended without {pattern!r}: {self.output!r}"
                break
            self.output += content.decode(errors="replace")
        return self.output

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def close(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(300)
        os.close(self._ours)
        return code


@pytest.fixture
def on_a_terminal() -> Iterator[Any]:
    opened: list[Terminal] = []

    def start(*arguments: str, **more: Any) -> Terminal:
        opened.append(Terminal(*arguments, **more))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def test_a_launch_asks_uploads_the_source_invokes_the_function_and_is_left_with_ctrl_c(
    on_a_terminal: Any, local: dict[str, str], local_aws: LocalAws, job: Path
) -> None:
    terminal = on_a_terminal("launch", "job.yaml", cwd=job, **local)
    terminal.read_until(r"Launch it\? \[y/N\]")
    terminal.type("y\n")
    terminal.read_until("line 2")
    terminal.process.send_signal(signal.SIGINT)
    terminal.read_until(None)
    assert terminal.process.wait(300) == ExitCode.DONE
    assert f"{RUN} launched" in terminal.output
    assert f"Detached. {RUN} goes on without you." in terminal.output
    assert f"spotkeep --local --deployment cli-test logs {RUN} -f" in terminal.output
    assert COLOUR.search(terminal.output)
    stored = local_aws.session().client("s3").list_objects_v2(Bucket=BUCKET, Prefix="sources/letters-")
    assert re.fullmatch(r"sources/letters-[0-9a-f]{8}/[0-9a-f]{64}\.tar\.gz", stored["Contents"][0]["Key"])
