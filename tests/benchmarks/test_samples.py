"""The table of published scripts, and what is done with a row of it."""

import ast
import json
import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from benchmarks.samples import __main__ as samples
from benchmarks.samples import made_data, page
from benchmarks.samples.table import SAMPLES, Edit, Packages, Sample


def _sample(**changes) -> Sample:
    values = {
        "name": "small",
        "repository": "owner/name",
        "commit": "",
        "folder": "examples",
        "script": "train.py",
        "framework": "none",
        "packages": Packages(name="none", requirements=("numpy==2.4.6",)),
        "command": "python train.py --resume",
        "reason": "loads what it saved",
        "broken": Edit(pattern=" --resume", what="without --resume"),
    }
    return Sample(**values | changes)


def test_twenty_rows_of_at_least_eight_frameworks():
    assert len({sample.name for sample in SAMPLES}) == len(SAMPLES) == 20
    assert len({sample.framework.partition(",")[0] for sample in SAMPLES}) >= 8


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_row_names_what_exists(sample):
    assert re.fullmatch(r"[0-9a-f]{40}", sample.commit)
    assert not sample.data or sample.data in made_data.WRITERS
    assert set(f"{sample.verdict} or {sample.broken_verdict}".split(" or ")) <= {"PASS", "FAIL", "NOT JUDGED"}
    if sample.broken.file is None:
        assert samples._edited(sample.broken, sample.command) != sample.command


@pytest.fixture
def mirrors(tmp_path):
    repository = tmp_path / "mirrors" / "owner" / "name"
    (repository / "examples").mkdir(parents=True)
    (repository / "examples" / "train.py").write_text("resume = True\n")
    (repository / "README.md").write_text("a repository\n")
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (["init", "--quiet"], ["add", "-A"], ["commit", "--quiet", "-m", "one"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    return tmp_path / "mirrors"


def _commit(mirrors: Path) -> str:
    words = ["git", "-C", str(mirrors / "owner" / "name"), "rev-parse", "HEAD"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def test_the_folder_of_the_pinned_commit_is_the_job_folder(mirrors, tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    samples._check_out(_sample(commit=_commit(mirrors)), folder, mirrors=mirrors)
    assert [path.name for path in folder.iterdir()] == ["train.py"]


def test_another_commit_is_refused(mirrors, tmp_path):
    with pytest.raises(samples.SampleError):
        samples._check_out(_sample(commit="0" * 40), tmp_path, mirrors=mirrors)


def test_a_change_that_does_not_fit_is_refused(tmp_path):
    (tmp_path / "train.py").write_text("resume = False\n")
    edit = Edit(file="train.py", pattern="resume = True", replacement="resume = None", what="never resumes")
    with pytest.raises(samples.SampleError, match="found 0 times"):
        samples._broken(_sample(broken=edit), tmp_path)


def test_either_of_two_verdicts_is_right():
    sample = _sample(verdict="PASS or NOT JUDGED")
    values = {"sample": sample, "broken": False, "headline": "", "reasons": (), "seconds": 1.0}
    assert samples.Seen(verdict="NOT JUDGED", **values).is_right
    assert not samples.Seen(verdict="FAIL", **values).is_right


def test_the_page_shows_a_wrong_verdict(tmp_path, monkeypatch, capsys):
    seen = tmp_path / "seen.json"
    first = SAMPLES[0]
    outcome = {"sample": first.name, "broken": False, "verdict": "PASS", "right": False}
    seen.write_text(json.dumps({"rehearsals": [outcome]}))
    monkeypatch.setattr("sys.argv", ["page", str(seen)])
    assert page.main() == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if f"`{first.name}`" in line)
    assert "| PASS (wrong) |" in row
    assert row.endswith("| not yet seen |")


def test_the_patch_on_the_page_is_whole_and_of_as_many_lines_as_its_row_says():
    page_text = (Path(__file__).parents[2] / "docs" / "samples.md").read_text()
    [patch] = re.findall(r"```diff\n(.*?)```", page_text, re.DOTALL)
    [(changed, less)] = re.findall(r"\| the same, with the patch below \|.*?\| (\d+), and (\d+) less \|", page_text)
    hunks = re.findall(r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@\n((?:[-+].*\n)+?)(?=@@|---|\Z)", patch, re.MULTILINE)
    assert len(hunks) == patch.count("\n@@ ")
    for removed, added, lines in hunks:
        new = [line[1:] for line in lines.splitlines() if line.startswith("+")]
        old = [line[1:] for line in lines.splitlines() if line.startswith("-")]
        assert [len(old), len(new)] == [int(removed or 1), int(added or 1)]
        ast.parse(textwrap.dedent("\n".join(new)))
    assert sum(int(added or 1) for _, added, _ in hunks) == int(changed)
    assert sum(int(removed) for removed, added, _ in hunks if added == "0") == int(less)
