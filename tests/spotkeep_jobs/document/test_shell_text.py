"""A command as text: words, a block of lines for bash, or refused because a shell would read it in another way."""

# ruff: noqa: RUF001 - characters that look like others are what is tested

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from spotkeep.runner import supervision
from spotkeep_jobs.document.command import read_command, read_setup
from spotkeep_jobs.document.shell_text import SHELLS, programs_of, reads_hyperparameters

WORDS = {
    "python train.py": ["python", "train.py"],
    "python train.py\n": ["python", "train.py"],
    "python train.py --lr 0.1  --epochs 3\n": ["python", "train.py", "--lr", "0.1", "--epochs", "3"],
    "python train.py --x 'a && b' --y \"c | d\"": ["python", "train.py", "--x", "a && b", "--y", "c | d"],
    "python train.py --pattern '*.csv' *.csv": ["python", "train.py", "--pattern", "*.csv", "*.csv"],
    "python train.py --re '^a$|$B' --cost \"5$\" x$": ["python", "train.py", "--re", "^a$|$B", "--cost", "5$", "x$"],
    "python train.py --dir my\\ data --to \\$HOME a\\;b": [
        "python", "train.py", "--dir", "my data", "--to", "$HOME", "a;b",
    ],
    "python train.py --shape (1,2) --layers [64,32] +a={b:1}": [
        "python", "train.py", "--shape", "(1,2)", "--layers", "[64,32]", "+a={b:1}",
    ],
    "python train.py out=${oc.env:HOME} n=#1": ["python", "train.py", "out=${oc.env:HOME}", "n=#1"],
    "python train.py --name O’Neil --text 'a “quoted” word' x–y": [
        "python", "train.py", "--name", "O’Neil", "--text", "a “quoted” word", "x–y",
    ],
    "sh -c './prepare.sh && exec python train.py \"$@\"' sh": [
        "sh", "-c", './prepare.sh && exec python train.py "$@"', "sh",
    ],
    'bash -lc "cd src && python train.py --out $SM_MODEL_DIR"': [
        "bash", "-lc", "cd src && python train.py --out $SM_MODEL_DIR",
    ],
    "python train.py \\\n  --lr 0.1 \\\r\n\t--epochs 3\n": ["python", "train.py", "--lr", "0.1", "--epochs", "3"],
    "python train.py\n    --lr 0.1\n    -b 3\n": ["python", "train.py", "--lr", "0.1", "-b", "3"],
    "python train.py\n    model=big\n    +data.lr=0.1": ["python", "train.py", "model=big", "+data.lr=0.1"],
    "time python train.py": ["time", "python", "train.py"],
}  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WORDS.items())
def test_a_text_of_one_line_is_words(text, words):
    assert read_command(text) == words


BLOCKS = {
    "python prepare.py\npython train.py\n": None,
    "\n\n  python prepare.py\r\n  python train.py\r\n\r\n": "  python prepare.py\n  python train.py\n",
    "python train.py --to $SM_MODEL_DIR \\\n\t--lr 0.1": "python train.py --to $SM_MODEL_DIR \\\n\t--lr 0.1\n",
    "python prepare.py\n    python train.py": "python prepare.py\n    python train.py\n",
    'python prepare.py\nmodel=big\npython train.py "model=$model"\n': None,
    'args=(\n  --lr 0.1\n  -x\n)\ncase $1 in\n  -h|--help) exit;;\nesac\npython train.py "${args[@]}"\n': None,
    "cat <<END\n--lr\nEND\necho '\n--lr' | python train.py\n": None,
    "cd src && python train.py\n": None,
    "export A=1\n": None,
    "LR=0.1\npython train.py --lr $LR\n": None,
    "cd src\nx=$(python train.py)\n": None,
    "cd src\npython train.py \\\nmodel=big\n": None,
    "python -c '\nimport train\ntrain.lr=1'\n": None,
    "#!/bin/bash\nset +e\npython train.py\n": None,
    "#!/usr/bin/env -S bash -l\npython train.py\n": None,
    "python - <<'END'\nprint(“not Python, and not for bash”)  # it's\nEND\necho \"it’s\"\n": None,
    "cat <<-A <<B\n\t“\n\tA\n“\nB\npython train.py\n": None,
    'echo it is  # don’t “quote”\npython train.py <<< "$X"\n': None,
}


@pytest.mark.parametrize(("text", "block"), BLOCKS.items())
def test_a_text_of_several_lines_or_one_that_is_ended_and_needs_a_shell_is_a_block(text, block):
    read = read_command(text)
    assert read == (block or text)
    assert read_command(read) == read, "as a record is read again"


REFUSED = {
    "python prepare.py && python train.py": "&&",
    "python prepare.py;python train.py": ";",
    "python train.py > log.txt": ">",
    "python train.py 2>&1 | tee log.txt": "2>&1",
    "python train.py &": "&",
    "python train.py --url http://host/?a=1&b=2": "&",
    "python train.py < data.csv": "<",
    "python train.py --out $SM_MODEL_DIR": "$SM_MODEL_DIR",
    'python train.py --out "${SM_MODEL_DIR}/x"': "${SM_MODEL_DIR}",
    "python train.py --out ${SM_MODEL_DIR:-out}": "${SM_MODEL_DIR:...",
    "torchrun --nproc-per-node $(nproc) train.py": "$(...",
    "torchrun --nproc-per-node `nproc` train.py": "backquote",
    "python train.py $@": "$@",
    'python train.py "$[2*3]"': "$[...",
    "python train.py $'a\\tb'": "$'",
    "python train.py --lr 1 # the best": "comment",
    "(python train.py)": "begins with (",
    "cd src": "begins with cd",
    "exec python train.py": "begins with exec",
    "LR=1 python train.py": "assignment LR=1",
}


@pytest.mark.parametrize(("text", "named"), REFUSED.items())
def test_a_text_of_one_line_that_needs_a_shell_is_refused_with_the_two_ways(text, named):
    with pytest.raises(PydanticCustomError) as refused:
        read_command(text)
    problem, fix = refused.value.context["problem"], refused.value.context["fix"]
    assert named in problem
    assert "no shell reads a text of one line" in problem
    assert "`command: |`" in fix
    assert "a list of words" in fix
    if not text.endswith("&") and "&b=2" not in text:
        assert read_command(f"{text}\n") == f"{text}\n", "written as a block"
    assert read_command(["python", text]) == ["python", text], "a list stays as it is"


MISPRINTS = {
    "python train.py --text “hello world”": "“ (U+201C)",
    "python train.py --text=‘hello’": "‘ (U+2018)",
    "python train.py –epochs 3": "– (U+2013)",
    "python\u00a0train.py": "(U+00A0)",
    "python train.py \\ --lr 0.1 \\ --epochs 3\n": "backslash",
    "python train.py \\ \n  --lr 0.1\n": "backslash",
    "python train.py\necho “done”\n": "“ (U+201C)",
}


def test_the_shells_are_those_that_the_runner_knows():
    assert SHELLS == supervision._SHELLS


@pytest.mark.parametrize(("text", "named"), MISPRINTS.items())
def test_what_only_looks_like_a_character_of_a_command_line_is_refused(text, named):
    with pytest.raises(PydanticCustomError) as refused:
        read_command(text)
    assert named in refused.value.context["problem"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("# prepare\n# train\n", "comments alone"),
        ("cd src\npython train.py\n  --lr 0.1\n", "begins line 3 with the option --lr"),
        ("python train.py --to $SM_MODEL_DIR\n  --lr 0.1\n", "begins line 2 with the option --lr"),
        ("python train.py\nmodel=big\n", "ends with model=big on a line of its own"),
        ("cd src\npython train.py\n+trainer.epochs=3  \n", "ends with +trainer.epochs=3"),
        ("python train.py \\\n  --lr 0.1 \\\n  # --old 3 \\\n  --new 4\n", "begins line 4 with the option --new"),
        ("#!/usr/bin/env python3\nimport train\n", "asks for python3"),
        ("python train.py\necho \0\n", "NUL"),
        ("echo one\n" * 3000, "characters"),
        ("\n \n", "is empty"),
    ],
)
def test_a_block_that_cannot_be_run_is_refused(text, named):
    with pytest.raises(PydanticCustomError) as refused:
        read_command(text)
    assert named in refused.value.context["problem"]


@pytest.mark.parametrize(
    "block",
    [
        "python train.py &\n",
        "cd src\nnohup python train.py > log.txt 2>&1 &\necho $! > pid.txt\n",
        "for gpu in 0 1; do\n  CUDA_VISIBLE_DEVICES=$gpu python train.py &  # & in a comment\ndone\n",
        "python - <<END &\nprint(1)\nEND\n",
        "(python train.py &)\n",
        "python train.py & disown\n",
        "python train.py --url http://host/?a=1&b=2\n",
    ],
)
def test_a_block_that_ends_while_its_program_runs_is_refused(block):
    """bash would end with code 0 at once, and a run that has not trained would be completed."""
    with pytest.raises(PydanticCustomError) as refused:
        read_command(block)
    assert "in the background" in refused.value.context["problem"]
    assert "wait $!" in refused.value.context["fix"]
    assert read_setup(block) == block, "a service for the training"


@pytest.mark.parametrize(
    "block",
    [
        "nvidia-smi dmon > gpu.txt &\npython train.py\n",
        "python train.py &\nwait $!\n",
        "python a.py & python b.py & wait\n",
        "python train.py 2>&1 | tee log.txt\n",
        "python train.py &> log.txt\n",
        "python train.py |& tee log.txt\n",
        "python train.py 2>&1 >&2 <&0\n",
        "cd . && python train.py --url 'a&b' \"c&d\" e\\&f  # &\n",
        "case $1 in\n  a) echo a ;;&\n  *) python train.py ;&\nesac\n",
        "python train.py $(( 6 & 3 ))\n",
    ],
)
def test_a_block_may_have_programs_in_the_background_beside_its_last_one(block):
    assert read_command(block) == block


def test_a_block_that_sets_a_machine_up_has_the_same_bounds():
    assert read_setup("apt-get update\napt-get install -y x\n") == "apt-get update\napt-get install -y x\n"
    assert read_setup("apt-get install -y x\n" * 120)
    with pytest.raises(PydanticCustomError, match="characters"):
        read_setup("apt-get install -y x\n" * 1_200)
    with pytest.raises(PydanticCustomError) as refused:
        read_setup("pip install x && pip install y")
    assert "`setup: |`" in refused.value.context["fix"]


_TEXTS = st.text(alphabet="ab=-/.*?[]{}()#~!%^+:,'\"\\$`;&|<> \t", max_size=16)


@pytest.mark.skipif(shutil.which("bash") is None, reason="compares with bash")
@given(_TEXTS)
@settings(max_examples=60, deadline=None)
def test_what_is_taken_as_words_is_what_bash_makes_of_it(text):
    """But for patterns, braces and `~`, of which bash makes names of files: `set -f`, and left out below."""
    line = f"echo {text}"
    try:
        words = read_command(line)
    except PydanticCustomError:
        return
    if any(each in text for each in "~{(!)") or "\\" in text:
        return
    said = subprocess.run(
        ["bash", "-fc", f"printf '%s\\0' {text}"], capture_output=True, check=True, text=True, env={"PATH": "/bin"}
    ).stdout
    assert said.split("\0")[:-1] == (words[1:] or [""])


@pytest.mark.parametrize(
    "word", ['"$@"', "$*", "${1}", "$SM_HPS", "${SM_HP_LR}", "SM_USER_ARGS", "hyperparameters.json"]
)
def test_a_block_reads_its_hyperparameters_in_one_of_these_ways(word):
    assert reads_hyperparameters(f"cd src\npython train.py {word}\n")
    assert not reads_hyperparameters("cd src\npython train.py --lr $LR $0\n")


def test_every_word_that_was_quoted_for_a_shell_stays_as_it_is():
    words = ["python", "a b", "$HOME", "`x`", "a;b", "#", "“", "it's", 'say "no"', "\\", "*", ""]
    assert read_command(shlex.join(words)) == words


def test_the_programs_of_a_block_are_found_without_running_it():
    block = """\
#!/bin/bash
export A=1; B=2 python "pre pare.py" --x 'a && b'  # don't
cat > out.txt <<'END' && cd src
python never.py 'it is
END
if ! torchrun --nproc-per-node "$(nproc)" \\
    train.py "$@" 2>&1 | tee -a log.txt; then exec python after.py; fi
"""
    assert programs_of(block) == [
        ("export", "A=1"),
        ("python", "pre pare.py", "--x", "a && b"),
        ("cat",),
        ("cd", "src"),
        ("torchrun", "--nproc-per-node", "$(nproc)", "train.py", "$@"),
        ("tee", "-a", "log.txt"),
        ("python", "after.py"),
        ("fi",),
    ]
    assert programs_of("echo 'never closed") == []
