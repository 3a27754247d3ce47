"""Real commands are run, taken away and judged, on real processes and disks."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from spotkeep_rehearsal.command import main
from spotkeep_rehearsal.evidence import RunFacts
from spotkeep_rehearsal.losses import PlacedLoss
from spotkeep_rehearsal.runs import Plan, Rehearsal
from tests.html import Parsed
from tests.spotkeep_cli.json_schemas import REPORT_ON_A_COMMAND, check_document
from tests.spotkeep_rehearsal.scripts import environment, rehearse, write_training

PASS, FAIL, NOT_JUDGED = 0, 1, 2
WAYS = [pytest.param((), id="mounts"), pytest.param(("--no-mounts",), id="copies")]


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_training(tmp_path / "a project")


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--numbered",),
        ("--quiet", "--numbered"),
        ("--noise",),
        ("--tidy",),
        ("--checkpoints", "/opt/ml/checkpoints", "--out", "model.pkl"),
        ("--checkpoints", "/nowhere/here"),
        ("--wrong", "code-0-on-notice"),
        ("--wrong", "deaf"),
    ],
    ids=" ".join,
)
def test_a_script_that_goes_on_passes(folder: Path, way: tuple[str, ...], arguments: tuple[str, ...]) -> None:
    before = tree(folder)
    ended = rehearse(folder, *way, arguments=arguments)
    assert ended.returncode == PASS, ended.stdout + ended.stderr
    assert tree(folder) == before
    assert list((folder.parent / "temporary").iterdir()) == []
    assert "Next: spotkeep init train.py" in ended.stdout


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("arguments", "headline"),
    [
        (("--wrong", "ignores"), "It begins anew after an interruption."),
        (("--wrong", "ignores", "--tidy"), "It begins anew after an interruption."),
        (("--wrong", "no-epoch"), "It begins anew after an interruption."),
        (("--wrong", "never-saves"), "It begins anew after an interruption."),
        (("--wrong", "ignores", "--quiet", "--numbered"), "It begins anew after an interruption."),
        (("--wrong", "no-weights"), "It goes on, and ends with another result"),
        (("--wrong", "no-momentum"), "It goes on, and ends with another result"),
        (("--wrong", "no-random-state"), "It goes on, and ends with another result"),
        # Beside noise each life needs some epochs to show its weights, also where a busy machine takes it away late.
        (("--wrong", "ignores", "--noise", "--epochs", "20"), "It begins anew after an interruption."),
        (("--wrong", "no-weights", "--noise", "--epochs", "20"), "It goes on, and ends with another result"),
        (("--wrong", "code-1-on-notice"), "It does not come back from an interruption."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_script_whose_resume_is_broken_fails(
    folder: Path, way: tuple[str, ...], arguments: tuple[str, ...], headline: str
) -> None:
    ended = rehearse(folder, *way, arguments=arguments)
    assert ended.returncode == FAIL, ended.stdout + ended.stderr
    assert headline in ended.stdout
    assert "Change: " in ended.stdout


def test_the_report_is_json_and_junit_and_a_page_and_says_what_was_lost(folder: Path) -> None:
    junit = folder.parent / "junit.xml"
    page = folder.parent / "report.html"
    ended = rehearse(folder, "--json", "--junit", str(junit), "--html", str(page), "--interrupt-at", "4")
    assert ended.returncode == PASS, ended.stdout + ended.stderr
    document = json.loads(ended.stdout)
    check_document(REPORT_ON_A_COMMAND, document)
    assert document["verdict"] == "PASS"
    assert document["counted_by"] == "lines"
    assert document["checkpoints"] == "ckpt/"
    (loss,) = document["losses"]
    assert (loss["notice"], loss["going"]) == (True, "went on")
    assert loss["at_step"] >= 4  # A busy machine prints one more before the notice comes.
    assert "left alone" in ended.stderr
    suite = ET.parse(junit).getroot()  # noqa: S314 - our own file
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    assert len(suite.findall("testcase")) == 2
    shown = Parsed(page.read_text(encoding="utf-8")).text
    assert document["headline"] in shown
    assert document["next"] in shown
    assert "taken away once" in shown


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [(("--wrong", "ignores"), "FAIL"), (("--wrong", "raises"), "NOT JUDGED"), (("--quiet",), "PASS")],
)
def test_the_document_of_each_verdict_has_the_form_of_the_schema(
    folder: Path, arguments: tuple[str, ...], verdict: str
) -> None:
    document = json.loads(rehearse(folder, "--json", "--losses", "2", "--seed", "4", arguments=arguments).stdout)
    check_document(REPORT_ON_A_COMMAND, document)
    assert document["verdict"] == verdict, document["reasons"]


def test_a_loss_that_never_came_comes_sooner_in_the_next_try(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    losses: list[Sequence[PlacedLoss]] = []

    def run(rehearsal: Rehearsal, plan: Plan) -> RunFacts:
        if plan.name == "interrupted":
            losses.append(plan.losses)
            if len(losses) == 1:
                never = replace(plan.losses[1], seconds=1_000, writes=None)
                plan = replace(plan, losses=(plan.losses[0], never))
        return really_run(rehearsal, plan)

    really_run = Rehearsal.run
    monkeypatch.setattr(Rehearsal, "run", run)
    monkeypatch.chdir(folder)
    assert main(["--json", "--losses", "2", "--seed", "4", "--", sys.executable, "train.py", "--quiet"]) == PASS
    shown = capsys.readouterr()
    assert len(losses) > 1
    assert losses[1][1].seconds < 100
    assert "the command ended before an interruption was due: once more" in shown.err
    document = json.loads(shown.out)
    assert len(document["losses"]) == 2
    assert [each["name"] for each in document["runs"]].count("interrupted") == 1


def test_a_script_that_does_not_end_well_is_not_judged(folder: Path) -> None:
    ended = rehearse(folder, arguments=("--wrong", "raises"))
    assert ended.returncode == NOT_JUDGED
    assert "does not end well when it is left alone" in ended.stdout
    assert "no data here" in ended.stdout


def test_a_missing_module_is_named_with_its_install(folder: Path) -> None:
    (folder / "train.py").write_text("import nowhere_to_be_found.inner\n")
    ended = rehearse(folder)
    assert ended.returncode == NOT_JUDGED
    assert "python -m pip install nowhere_to_be_found" in " ".join(ended.stdout.split())


def test_a_script_that_hangs_is_ended_at_its_time(folder: Path) -> None:
    began = time.monotonic()
    ended = rehearse(folder, "--timeout", "2s", arguments=("--wrong", "hangs"))
    assert ended.returncode == NOT_JUDGED
    assert "--timeout" in ended.stdout
    assert time.monotonic() - began < 120


@pytest.mark.long
def test_nothing_that_a_command_has_started_outlives_the_rehearsal(folder: Path) -> None:
    ended = rehearse(folder, "--interrupt-at", "50%", arguments=("--wrong", "orphan"))
    assert ended.returncode == PASS, ended.stdout + ended.stderr
    assert not [
        pid for pid in _processes() if b"time.sleep(300)" in _words(pid) and str(folder).encode() in _where(pid)
    ]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_rehearsal_that_is_ended_leaves_no_process_and_no_file(folder: Path, signum: int) -> None:
    words = [sys.executable, "-m", "spotkeep_rehearsal", "--", sys.executable, "train.py", "--wrong", "hangs"]
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # Tests in the background inherit that it is ignored.
    with subprocess.Popen(
        words, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, text=True, preexec_fn=heard
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "left alone ..." in line:
                break
        time.sleep(0.3)
        process.send_signal(signum)
        assert process.wait(60) == 128 + signum
    assert list((folder.parent / "temporary").iterdir()) == []
    assert not [pid for pid in _processes() if b"hangs" in _words(pid) and str(folder).encode() in _where(pid)]


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_old_checkpoints_of_the_user_are_neither_used_nor_touched(folder: Path, way: tuple[str, ...]) -> None:
    subprocess.run([sys.executable, "train.py"], cwd=folder, check=True, capture_output=True)
    before = tree(folder)
    assert "ckpt/newest.pkl" in before
    ended = rehearse(folder, *way)
    assert ended.returncode == PASS, ended.stdout + ended.stderr
    assert "once more without them" in ended.stdout
    assert tree(folder) == before


@pytest.mark.long
def test_a_long_script_is_stopped_at_the_same_step_in_every_run(folder: Path) -> None:
    ended = rehearse(folder, "--for", "6s", arguments=("--epochs", "500", "--numbered"))
    assert ended.returncode == PASS, ended.stdout + ended.stderr
    assert "counted by the output" in ended.stdout
    broken = rehearse(folder, "--for", "6s", arguments=("--epochs", "500", "--wrong", "no-momentum"))
    assert broken.returncode == FAIL, broken.stdout + broken.stderr


@pytest.mark.long
def test_losses_are_drawn_and_the_seed_is_shown(folder: Path) -> None:
    ended = rehearse(folder, "--losses", "3", "--seed", "4", "--json")
    assert ended.returncode == PASS, ended.stdout + ended.stderr
    document = json.loads(ended.stdout)
    assert (document["seed"], len(document["losses"])) == (4, 3)
    assert "--seed 4 draws the same again" in ended.stderr


@pytest.mark.long
def test_a_copy_that_is_cut_off_shows_who_reads_half_a_file(folder: Path) -> None:
    safe = rehearse(folder, "--copy", "sagemaker", "--seed", "2", arguments=("--numbered",))
    assert safe.returncode == PASS, safe.stdout + safe.stderr
    # One file, so that the moments of the losses change nothing in the draw: this seed cuts it off at one of them.
    torn = rehearse(folder, "--copy", "sagemaker", "--seed", "2", arguments=("--wrong", "torn"))
    assert torn.returncode == FAIL, torn.stdout + torn.stderr
    assert "os.replace" in torn.stdout


@pytest.mark.long
def test_what_a_rehearsal_left_is_kept_on_request(folder: Path) -> None:
    kept = folder.parent / "kept"
    ended = rehearse(folder, "--keep", str(kept), "--interrupt-at", "50%", "--no-notice")
    assert ended.returncode == PASS, ended.stdout + ended.stderr
    assert {"alone", "again", "interrupted"} <= {path.name for path in kept.iterdir()}


def test_without_mounts_a_path_that_cannot_be_given_is_not_judged(folder: Path) -> None:
    ended = rehearse(folder, "--no-mounts", "--checkpoints", "/nowhere/here")
    assert ended.returncode == NOT_JUDGED
    assert "--checkpoints" in ended.stdout
    (folder / "train.py").write_text("FOLDER = '/opt/ml/checkpoints'\nprint('done')\n")
    ended = rehearse(folder, "--no-mounts")
    assert ended.returncode == NOT_JUDGED
    assert "train.py:1" in ended.stdout


def test_without_mounts_a_write_into_the_folder_itself_is_noticed(folder: Path) -> None:
    (folder / "train.py").write_text(f"open({str(folder / 'stray.bin')!r}, 'w').close()\n")
    ended = rehearse(folder, "--no-mounts")
    assert ended.returncode == NOT_JUDGED
    assert "stray.bin" in ended.stdout


SMALL_STATE = """
import json, os, sys, time
weight, momentum, start = 10.0, 0.0, 0
os.makedirs("a", exist_ok=True), os.makedirs("b", exist_ok=True)
if os.path.exists(READ) and os.path.exists(ALSO):
    weight, momentum, start = json.load(open(READ))
for epoch in range(start, 8):
    time.sleep(0.25)
    momentum = 0.9 * momentum + 0.1 * weight
    weight -= 0.1 * momentum
    for name in (READ, ALSO):
        json.dump((weight, momentum, epoch + 1), open("draft", "w"))
        os.replace("draft", name)
    print(f"epoch {epoch} loss {weight:.4f}")
"""


@pytest.mark.long
def test_a_state_of_the_kind_of_a_log_comes_back(folder: Path) -> None:
    (folder / "train.py").write_text(SMALL_STATE.replace("READ", "'progress.json'").replace("ALSO", "'progress.json'"))
    ended = rehearse(folder)
    assert ended.returncode == PASS, ended.stdout + ended.stderr


@pytest.mark.long
def test_a_script_that_needs_two_folders_fails_and_both_are_named(folder: Path) -> None:
    (folder / "train.py").write_text(SMALL_STATE.replace("READ", "'a/state.bin'").replace("ALSO", "'b/state.bin'"))
    ended = rehearse(folder)
    assert ended.returncode == FAIL, ended.stdout + ended.stderr
    assert "one folder survives an interruption" in " ".join(ended.stdout.split())


ON_NOTICE = """
import os, pickle, signal, sys, time
weight, start, noticed = 10.0, 0, []
signal.signal(signal.SIGTERM, lambda *_: noticed.append(1))
if os.path.exists("FILE"):
    weight, start = pickle.load(open("FILE", "rb"))
for epoch in range(start, 8):
    time.sleep(0.25)
    weight *= 0.9
    print(f"epoch {epoch} loss {weight:.4f}")
    if noticed:
        os.makedirs(os.path.dirname("FILE") or ".", exist_ok=True)
        pickle.dump((weight, epoch + 1), open("FILE", "wb"))
        sys.exit(75)
pickle.dump(weight, open("model.pkl", "wb"))
"""


@pytest.mark.long
def test_a_script_that_saves_on_a_notice_alone_is_asked_for_its_folder(folder: Path) -> None:
    (folder / "train.py").write_text(ON_NOTICE.replace("FILE", "state.pkl"))
    ended = rehearse(folder)
    assert ended.returncode == NOT_JUDGED, ended.stdout + ended.stderr
    assert "wrote state.pkl when it was interrupted" in " ".join(ended.stdout.split())
    (folder / "train.py").write_text(ON_NOTICE.replace("FILE", "out/state.pkl"))
    ended = rehearse(folder, "--checkpoints", "out")
    assert ended.returncode == PASS, ended.stdout + ended.stderr


LARGE = 2 << 20
APPENDS = """
import os
for epoch in range(4):
    print(f"epoch {epoch} loss {1 / (epoch + 1):.3f}")
with open("PATH", "r+b") as file:
    file.write(b"changed")
"""


@pytest.mark.parametrize("way", WAYS)
def test_a_script_that_overwrites_its_data_changes_a_copy(folder: Path, way: tuple[str, ...]) -> None:
    (folder / "data.npy").write_bytes(b"x" * LARGE)
    (folder / "train.py").write_text(APPENDS.replace("PATH", "data.npy"))
    before = tree(folder)
    ended = rehearse(folder, *way)
    assert "overwrote" not in ended.stdout
    assert tree(folder) == before


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("target", ["data", "data/large.npy"])
def test_a_write_through_a_link_out_of_the_folder_is_noticed(folder: Path, way: tuple[str, ...], target: str) -> None:
    outside = folder.parent / "outside" / target
    (outside if target == "data" else outside.parent).mkdir(parents=True)
    name = "large.npy" if target == "data" else "."
    (outside / name).write_bytes(b"x" * LARGE)
    (folder / "link").symlink_to(outside)
    (folder / "train.py").write_text(APPENDS.replace("PATH", os.path.normpath(f"link/{name}")))
    ended = rehearse(folder, *way)
    if (outside / name).read_bytes()[:1] != b"x":
        assert ended.returncode == NOT_JUDGED, ended.stdout + ended.stderr
        assert str(outside / name) in " ".join(ended.stdout.split())


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_a_given_checkpoint_folder_that_is_a_link_is_neither_used_nor_touched(
    folder: Path, way: tuple[str, ...]
) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (folder / "ckpt").symlink_to(outside)
    ended = rehearse(folder, *way, "--checkpoints", "ckpt")
    assert ended.returncode == PASS, ended.stdout + ended.stderr
    assert list(outside.iterdir()) == []
    assert (folder / "ckpt").is_symlink()


def test_without_mounts_a_link_inside_the_folder_leads_into_the_copy(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "small.bin").write_bytes(b"x")
    (folder / "link").symlink_to(folder / "data" / "small.bin")
    (folder / "train.py").write_text(APPENDS.replace("PATH", "link"))
    before = tree(folder)
    rehearse(folder, "--no-mounts")
    assert tree(folder) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["python", "train.py"],
        ["--"],
        ["--interrupt-at", "late", "--", "true"],
        ["--for", "soon", "--", "true"],
        ["--losses", "0", "--", "true"],
        ["--no-such-option", "--", "true"],
        ["--keep", __file__, "--", "true"],
        ["--junit", "/no/such/folder/junit.xml", "--", "true"],
        ["--html", "/no/such/folder/report.html", "--", "true"],
    ],
    ids=" ".join,
)
def test_a_wrong_use_is_answered_with_its_exit_code(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 64
    assert "spotkeep rehearse: " in capsys.readouterr().err


def test_the_whole_machine_is_no_folder_of_a_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir("/")
    assert main(["--", "true"]) == 64
    assert "the whole machine" in capsys.readouterr().err


def test_a_command_that_is_not_there_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--", "no-such-program-here"]) == NOT_JUDGED
    assert "was not found on PATH" in capsys.readouterr().out


@pytest.mark.parametrize("given", [".", "..", "/", "train.py"])
def test_a_checkpoint_folder_that_cannot_be_one_is_not_judged(folder: Path, given: str) -> None:
    ended = rehearse(folder, "--checkpoints", given)
    assert ended.returncode == NOT_JUDGED
    assert "--checkpoints " in ended.stdout


def test_a_script_that_is_no_program_is_answered_with_its_python(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert main(["--", "./train.py"]) == NOT_JUDGED
    assert "python ./train.py" in capsys.readouterr().out


def test_a_report_whose_reader_ended_leaves_no_traceback_and_no_file(folder: Path) -> None:
    words = [sys.executable, "-m", "spotkeep_rehearsal", "--", sys.executable, "train.py"]
    with subprocess.Popen(
        words, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 128 + signal.SIGPIPE
    assert list((folder.parent / "temporary").iterdir()) == []


def test_a_full_disk_is_not_judged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.chdir(folder)
    monkeypatch.setattr("spotkeep_rehearsal.folders.shutil.copy2", fails)
    assert main(["--no-mounts", "--", sys.executable, "train.py"]) == NOT_JUDGED
    assert "TMPDIR" in capsys.readouterr().out


TORCH = """
import os, sys, torch
torch.manual_seed(1); torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
data = torch.randn(256, 8); target = data.sum(1, keepdim=True)
start = 0
if os.path.exists("checkpoint.pt") and "ignores" not in sys.argv:
    state = torch.load("checkpoint.pt")
    model.load_state_dict(state["model"]); start = state["epoch"] + 1
    if "no-optimizer" not in sys.argv:
        optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
for epoch in range(start, 10):
    for batch in torch.randperm(256).split(2):
        optimizer.zero_grad(); loss = torch.nn.functional.mse_loss(model(data[batch]), target[batch]); loss.backward()
        optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch,
             "random": torch.get_rng_state()}
    torch.save(state, "draft.tmp"); os.replace("draft.tmp", "checkpoint.pt")
    print(f"Epoch {epoch + 1}: loss {loss.item():.4f}")
torch.save(model.state_dict(), "model.pt")
"""


@pytest.mark.torch
@pytest.mark.parametrize(("wrong", "code"), [("", PASS), ("no-optimizer", FAIL)])
def test_a_torch_script_with_its_checkpoint_beside_the_source(tmp_path: Path, wrong: str, code: int) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(TORCH)
    ended = rehearse(folder, arguments=(wrong,) if wrong else ())
    assert ended.returncode == code, ended.stdout + ended.stderr


def _processes() -> list[str]:
    return [path.name for path in Path("/proc").glob("[0-9]*")]


def _words(pid: str) -> bytes:
    try:
        return Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return b""


def _where(pid: str) -> bytes:
    try:
        return os.fsencode(Path("/proc", pid, "cwd").readlink())
    except OSError:
        return b""
