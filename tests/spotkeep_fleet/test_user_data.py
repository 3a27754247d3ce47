"""The text that an instance boots with."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from spotkeep_fleet import signed_fetch
from spotkeep_fleet.user_data import MAX_BYTES, BootInputs, user_data

INPUTS = BootInputs(
    bundle_uri="s3://assets/0123.pyz",
    bundle_sha256="ab" * 32,
    region="us-east-1",
    run_table="runs",
    deployment="spotkeep",
)


def test_it_is_a_shell_script_that_fits(tmp_path: Path) -> None:
    text = user_data(INPUTS)
    assert text.startswith("#!/bin/sh\n")
    # Of what EC2 takes, a fifth stays free for a CDK token that becomes longer.
    assert len(text.encode()) < MAX_BYTES * 0.8
    script = tmp_path / "user-data"
    script.write_text(text)
    shell = shutil.which("dash") or "/bin/sh"
    subprocess.run([shell, "-n", str(script)], check=True)


def test_the_same_inputs_give_the_same_text() -> None:
    assert user_data(INPUTS) == user_data(INPUTS)


def test_the_fetch_in_it_is_the_tested_one() -> None:
    assert Path(signed_fetch.__file__).read_text().rstrip("\n") in user_data(INPUTS)


def test_what_is_put_in_cannot_break_out() -> None:
    evil = "s3://assets/'; rm -rf ~ #.pyz"
    text = user_data(BootInputs(evil, "0" * 64, "us-east-1", "runs", "spotkeep"))
    assert shlex.quote(evil) in text


def test_it_boots_and_boots_again_after_a_crash_of_the_agents_own(tmp_path: Path) -> None:
    """With stand-ins for Python and the agent: what the shell does with their exit codes."""
    tools = tmp_path / "bin"
    tools.mkdir()
    codes = tmp_path / "codes"
    codes.write_text("1\n3\n")
    python = tools / "python3"
    python.write_text(
        f"""#!/bin/sh
echo "$@" >> {tmp_path}/calls
code=$(head -n 1 {codes}); sed -i 1d {codes}; exit $code
"""
    )
    python.chmod(0o755)
    for name, text in {"sleep": "", "shutdown": f'echo shutdown "$@" >> {tmp_path}/calls\n'}.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}")
        (tools / name).chmod(0o755)
    script = tmp_path / "user-data"
    script.write_text(user_data(INPUTS))
    ended = subprocess.run(
        ["/bin/sh", str(script)],
        env={"PATH": f"{tools}:/usr/bin:/bin", "SPOTKEEP_LOCAL_INSTANCE_ROOT": str(tmp_path / "root")},
        check=False,
    )
    assert ended.returncode == 3
    home = tmp_path / "root/opt/spotkeep"
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"{home}/boot.py s3://assets/0123.pyz {'ab' * 32} us-east-1 {home}/{'ab' * 32}",
        f"{home}/boot.py s3://assets/0123.pyz {'ab' * 32} us-east-1 {home}/{'ab' * 32}",
        "shutdown -h now",
    ]
    assert (home / "agent.env").read_text().splitlines() == [
        "SPOTKEEP_DEPLOYMENT=spotkeep",
        "SPOTKEEP_RUN_TABLE=runs",
        "AWS_REGION=us-east-1",
    ]


@pytest.mark.parametrize(
    ("python", "says"),
    [(None, "spotkeep: this image has no python3"), ("echo unused", "spotkeep-boot: this instance goes (exit code 1)")],
    ids=["an image without Python", "a disk that cannot be written"],
)
def test_whatever_ends_it_the_instance_goes(tmp_path: Path, python: str | None, says: str) -> None:
    """An instance that stays up without an agent would only cost."""
    tools, root = tmp_path / "bin", tmp_path / "root"
    tools.mkdir()
    for name in ("cat", "mkdir"):
        (tools / name).symlink_to(shutil.which(name) or "")
    (tools / "shutdown").write_text(f'#!/bin/sh\necho shutdown "$@" >> {tmp_path}/calls\n')
    (tools / "shutdown").chmod(0o755)
    if python is not None:
        (tools / "python3").write_text(f"#!/bin/sh\n{python}\n")
        (tools / "python3").chmod(0o755)
        root.write_text("a file where a folder has to be")
    script = tmp_path / "user-data"
    script.write_text(user_data(INPUTS))
    environment = {"PATH": str(tools), "SPOTKEEP_LOCAL_INSTANCE_ROOT": str(root)}
    ended = subprocess.run(["/bin/sh", str(script)], env=environment, check=False, capture_output=True, text=True)
    assert ended.returncode != 0
    assert says in ended.stdout
    assert (tmp_path / "calls").read_text() == "shutdown -h now\n"


def test_ten_starts_of_the_agent_are_all_however_long_each_takes() -> None:
    """systemd forgets starts outside its interval: ten that take a minute each never came to ten in ten minutes."""
    assert "StartLimitIntervalSec=1d\n" in user_data(INPUTS)
