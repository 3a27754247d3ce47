"""The text that an instance boots with."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
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
    credentials_function="spotkeep-instance_credentials",
)


def test_it_is_a_shell_script_that_fits(tmp_path: Path) -> None:
    text = user_data(INPUTS)
    assert text.startswith("#!/bin/sh\n")
    # Of what EC2 takes, a sixth stays free for a CDK token that becomes longer.
    assert len(text.encode()) < MAX_BYTES * 5 / 6
    script = tmp_path / "user-data"
    script.write_text(text)
    shell = shutil.which("dash") or "/bin/sh"
    subprocess.run([shell, "-n", str(script)], check=True)


def test_the_fetch_in_it_is_the_tested_one() -> None:
    assert Path(signed_fetch.__file__).read_text().rstrip("\n") in user_data(INPUTS)


def test_what_is_put_in_cannot_break_out() -> None:
    evil = "s3://assets/'; rm -rf ~ #.pyz"
    text = user_data(BootInputs(evil, "0" * 64, "us-east-1", "runs", "spotkeep", "credentials"))
    assert shlex.quote(evil) in text


def boot(folder: Path, *, path: str = "/usr/bin:/bin", **programs: str) -> subprocess.CompletedProcess[str]:
    """Boot with stand-ins for programs; `shutdown` says in the file `calls` that it was called."""
    tools = folder / "bin"
    tools.mkdir()
    for name, text in {"shutdown": f'echo shutdown "$@" >> {folder}/calls\n', **programs}.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}")
        (tools / name).chmod(0o755)
    script = folder / "user-data"
    script.write_text(user_data(INPUTS))
    return subprocess.run(
        ["/bin/sh", str(script)],
        env={"PATH": f"{tools}:{path}", "SPOTKEEP_LOCAL_INSTANCE_ROOT": str(folder / "root")},
        check=False,
        capture_output=True,
        text=True,
    )


def test_it_boots_and_boots_again_after_a_crash_of_the_agents_own(tmp_path: Path) -> None:
    """With stand-ins for Python and the agent: what the shell does with their exit codes."""
    codes = tmp_path / "codes"
    codes.write_text("1\n3\n")
    python = f"""[ "$2" = -c ] && exit 0  # the question for its version
echo "$@" >> {tmp_path}/calls
code=$(head -n 1 {codes}); sed -i 1d {codes}; exit $code
"""
    ended = boot(tmp_path, python3=python, sleep="")
    assert ended.returncode == 3
    home = tmp_path / "root/opt/spotkeep"
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"-IS {home}/boot.py s3://assets/0123.pyz {'ab' * 32} us-east-1 {home}/{'ab' * 32}",
        f"-IS {home}/boot.py s3://assets/0123.pyz {'ab' * 32} us-east-1 {home}/{'ab' * 32}",
        "shutdown -h now",
    ]
    assert (home / "agent.env").read_text().splitlines() == [
        "SPOTKEEP_DEPLOYMENT=spotkeep",
        "SPOTKEEP_RUN_TABLE=runs",
        "SPOTKEEP_CREDENTIALS_FUNCTION=spotkeep-instance_credentials",
        "AWS_REGION=us-east-1",
    ]


@pytest.mark.parametrize(
    ("python", "says"),
    [
        (None, "spotkeep: this image has no python3"),
        ("echo unused", "spotkeep-boot: this instance goes (exit code 1)"),
    ],
    ids=["an image without Python", "a disk that cannot be written"],
)
def test_whatever_ends_it_the_instance_goes(tmp_path: Path, python: str | None, says: str) -> None:
    """An instance that stays up without an agent would only cost."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("cat", "mkdir"):
        (programs / name).symlink_to(shutil.which(name) or "")
    if python is not None:
        (tmp_path / "root").write_text("a file where a folder has to be")
    ended = boot(tmp_path, path=str(programs), **({} if python is None else {"python3": f"{python}\n"}))
    assert ended.returncode != 0
    assert says in ended.stdout
    assert (tmp_path / "calls").read_text() == "shutdown -h now\n"


def test_as_root_python_imports_its_standard_library_alone() -> None:
    """A package of the image, or a file that Python reads at each start, would run with the rights of the agent."""
    starts = [line for line in user_data(INPUTS).splitlines() if '"$python"' in line or line.startswith("ExecStart=")]
    assert len(starts) == 3
    assert all("-IS" in line for line in starts)


def test_ten_starts_of_the_agent_are_all_however_long_each_takes() -> None:
    """systemd forgets starts outside its interval: ten that take a minute each never came to ten in ten minutes."""
    assert "StartLimitIntervalSec=1d\n" in user_data(INPUTS)


def test_an_image_with_an_old_python_is_refused_and_its_console_says_so(tmp_path: Path) -> None:
    """Amazon Linux 2: an agent that cannot even be parsed would be started ten times, and say nothing of why."""
    ended = boot(tmp_path, python3='[ "$1" = --version ] && { echo Python 3.7.16; exit; }\nexit 1\n')
    assert (ended.returncode, (tmp_path / "calls").read_text()) == (3, "shutdown -h now\n")
    assert "spotkeep: this image has Python 3.7.16; 3.9 is needed" in ended.stdout


@pytest.mark.parametrize(
    ("says", "taken"),
    [("systemd 219", False), ("systemd 236", True), ("systemd 252 (252.23-2.amzn2023)", True), ("", False)],
)
def test_a_systemd_that_cannot_power_the_instance_off_is_refused(tmp_path: Path, says: str, taken: bool) -> None:
    """Of Amazon Linux 2: it ignores SuccessAction, and the instance would bill on when the agent has left."""
    lines = user_data(INPUTS).splitlines()
    begin = next(number for number, line in enumerate(lines) if "systemctl --version" in line)
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f"#!/bin/sh\necho '{says}'\necho +PAM +AUDIT\n")
    systemctl.chmod(0o755)
    refuse = next(line for line in lines if line.startswith("refuse()"))
    check = "\n".join([refuse, *lines[begin : begin + 3]])
    ended = subprocess.run(
        ["/bin/sh", "-c", check], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False, capture_output=True, text=True
    )
    assert (ended.returncode == 0) == taken
    assert (f"spotkeep: this image has systemd {says[8:]}; 236 is needed" in ended.stdout) != taken


def unit(home: Path) -> str:
    """The unit as the shell writes it."""
    _, _, rest = user_data(INPUTS).partition("<<END_OF_UNIT\n")
    text, _, _ = rest.partition("END_OF_UNIT\n")
    return text.replace("$python", sys.executable).replace("$home", str(home))


def test_a_training_that_the_kernel_kills_for_memory_does_not_stop_the_agent(tmp_path: Path) -> None:
    """systemd's default, stop, sends the agent SIGTERM; it left, another instance came, and so on."""
    settings = dict(line.split("=", 1) for line in unit(tmp_path).splitlines() if "=" in line)
    assert settings["OOMPolicy"] == "continue"
    assert settings["LimitNOFILE"] == "1048576"
    assert settings["LimitMEMLOCK"] == "infinity"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this machine")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    path = tmp_path / "spotkeep-agent.service"
    path.write_text(unit(tmp_path))
    found = subprocess.run(["systemd-analyze", "verify", path], check=False, capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
