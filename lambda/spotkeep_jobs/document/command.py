"""The command of a job, its setup, hyperparameters and environment, and the training spec that holds them.

A command is the words of a command line, or a block of lines for bash (`shell_text`). Without one the image's own entry
point runs, and nothing of Spotkeep beside it. All backends write the spec of a run's jobs with one function.

Sources:
    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import WithJsonSchema

from spotkeep_fleet.training_spec import (
    NO_INSTALLATION,
    SPEC_VARIABLE,
    HangLimit,
    JobSource,
    MlflowPlace,
    RunNumber,
    SearchedMetric,
    TrainingSpec,
    WandbPlace,
    encode_spec,
    spec_file_name,
)
from spotkeep_jobs.document.distributed import ranks_of
from spotkeep_jobs.document.reading import (
    INTO_A_FILE,
    MAX_VARIABLE,
    MAX_WORD,
    AnyText,
    Rule,
    excluded,
    more_than_fit,
    must,
    outlined,
    read_text,
    rule,
    scalar_text,
    single_line,
    written,
    wrong,
)
from spotkeep_jobs.document.shell_text import (
    SHELLS,
    does_nothing,
    is_block,
    left_in_the_background,
    lines_of,
    misprint,
    one_line_of,
    option_without_a_program,
    other_interpreter,
    passed_over,
    reads_hyperparameters,
    setting_at_the_end,
    waits_for_anything,
    why_a_shell,
)
from spotkeep_jobs.document.source import GitSource
from spotkeep_jobs.document.times import DEFAULT_STUCK_RESTARTS, StuckRequest
from spotkeep_jobs.errors import Problem
from spotkeep_jobs.record.record import RunGroup
from spotkeep_jobs.record.states import NotificationKind

if TYPE_CHECKING:
    from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
    from spotkeep_jobs.document.request import JobRequest

MAX_HYPERPARAMETERS: Final = 100
MAX_COMMAND_WORDS: Final = 99
MAX_BLOCK: Final = 25_000
"""The most characters of a block of lines for bash."""
RESERVED_VARIABLES: Final = (
    "SPOTKEEP_RUN",
    "SPOTKEEP_ATTEMPT",
    "SPOTKEEP_LEASE",
    "SPOTKEEP_LAUNCH",
    "SPOTKEEP_RUN_INDEX",
    "SPOTKEEP_RUN_COUNT",
    SPEC_VARIABLE,
    "SPOTKEEP_CHECKPOINT_DIR",
    "SPOTKEEP_EVENTS",
    "SPOTKEEP_PAUSE_AT_STEP",
    "SAGEMAKER_BASE_DIR",
    "TRAINING_JOB_NAME",
    "TRAINING_JOB_ARN",
)
_RESERVED_VARIABLE_PREFIXES: Final = ("SM_",)
_AS_WORDS_OR_BLOCK: Final = (
    "Write it as a block for bash, which is a text of several lines (in YAML: `command: |` and the lines below it), or "
    "as a list of words: [python, train.py]. Text in single quotes stays as it is"
)


def read_command(value: object) -> list[str] | str:
    """Return the command of the training script, as the words of a command line or as a block of lines for bash.

    A list is always words. A text of several lines is a block, and one of a single line is words unless it needs a
    shell (`shell_text`).
    """
    return _command(value, field="command")


def read_setup(value: object) -> list[str] | str:
    """Return the command that sets a machine up."""
    return _command(value, field="setup")


def _command(value: object, *, field: str) -> list[str] | str:
    if isinstance(value, str):
        if len(value) > MAX_BLOCK:
            raise wrong(f"has {len(value)} characters", "Put the work into a script of the source and call that")
        text = read_text(value)
        if is_block(text):
            return _block(text, field=field)
        words: list[object] = list(_words_of(one_line_of(text) or "", field=field))
    elif isinstance(value, list | tuple):
        words = list(value)
    else:
        raise wrong("is neither text nor a list", 'Write it as text ("python train.py") or as a list of words')
    if not words or not words[0]:
        raise wrong("is empty", 'Give the command that trains, for example "python train.py"')
    if len(words) > MAX_COMMAND_WORDS:
        raise wrong(
            f"has {len(words)} words; a command takes {MAX_COMMAND_WORDS}",
            "Put options into hyperparameters or into a file of the source",
        )
    read = [single_line(scalar_text(word), longest=MAX_WORD, what="the command") for word in words]
    if re.match(r"[^/\s]+\s", read[0]):
        raise wrong(
            f"has {read[0][:80]!r} for its program, with a blank in it",
            "A list holds the words of one command: [python, train.py]. Commands on lines of their own are a text (in "
            f"YAML: `{field}: |` and the lines below it)",
        )
    return read


def _words_of(line: str, *, field: str) -> list[str]:
    _refuse_misprints(line)
    reason = why_a_shell(line)
    if reason is not None:
        raise wrong(f"{reason}, and no shell reads a text of one line", _AS_WORDS_OR_BLOCK.replace("command", field, 1))
    try:
        return shlex.split(line)
    except ValueError as error:
        raise wrong(f"cannot be split into words ({error})", "Close the quote, or write a list") from None


def _block(text: str, *, field: str) -> str:
    block = lines_of(text) + "\n"
    if does_nothing(block):
        raise wrong("is comments alone", 'Give the command that trains, for example "python train.py"')
    if "\0" in block:
        raise wrong("holds a NUL character", "Remove it")
    program = other_interpreter(block)
    if program is not None:
        raise wrong(
            f"is a block for bash, and its first line asks for {program}",
            "Put it into a script of the source and call that, or remove the line",
        )
    _refuse_misprints(block)
    lost = option_without_a_program(block) or setting_at_the_end(block)
    if lost is not None:
        raise wrong(lost, "End the line above with a backslash, as the last character, if the command goes on")
    if field == "command" and left_in_the_background(block):
        raise wrong(
            "ends while a program of it is in the background (&): bash would end with code 0, and the run with it",
            "Remove the & behind the program that trains, or end the block with `wait $!`. What holds an & as a "
            "character needs quotes",
        )
    return block


def _refuse_misprints(text: str) -> None:
    found = misprint(text)
    if found is not None:
        raise wrong(found, "Type it anew on the keyboard, or remove it. Text in quotes stays as it is")


COMMAND_SCHEMA: Final = WithJsonSchema(
    {
        "anyOf": [
            {"type": "string", "minLength": 1},
            {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_COMMAND_WORDS,
                "items": {"type": ["string", "number", "boolean"]},
            },
        ]
    },
    mode="validation",
)
"""A command as a text, or word by word."""


def read_hyperparameter_name(value: object) -> str:
    """Return the name of a hyperparameter."""
    text = read_text(value)
    if not text:
        raise wrong("is an empty name", "Name the hyperparameter")
    return single_line(text, longest=256, what="the script")


def read_hyperparameter(value: object) -> str:
    """Return the value of a hyperparameter, which is any scalar, as the text that the script gets."""
    text = json.dumps(value) if isinstance(value, float) else scalar_text(value)
    return single_line(text, longest=256, what="the script")


VariableName = Annotated[
    AnyText,
    must(
        written(r"[a-zA-Z_][a-zA-Z0-9_]{0,511}"),
        "is not the name of an environment variable: at most 512 letters, digits and underscores, no digit first",
        "Rename the variable",
    ),
    must(
        lambda text: text not in RESERVED_VARIABLES and not text.startswith(_RESERVED_VARIABLE_PREFIXES),
        "is a variable that Spotkeep or SageMaker sets",
        "Rename the variable",
    ),
]


def read_variable(value: object) -> str:
    """Return the value of an environment variable."""
    text = scalar_text(value)
    if len(text) > MAX_VARIABLE:
        raise wrong(
            f"has {len(text)} characters; SageMaker takes {MAX_VARIABLE}",
            "Put it into a file of the source or a channel",
        )
    if "\0" in text:
        raise wrong("holds a NUL character", "Remove it")
    return text


_MARKS_OF_A_LAUNCH: Final = 3
"""Variables of the run, the attempt and the launch."""
_MAX_ENVIRONMENT: Final = 100


@rule("hyperparameters")
def _hyperparameters_fit(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    yield from more_than_fit("hyperparameters", request.hyperparameters, limit=MAX_HYPERPARAMETERS, fix=INTO_A_FILE)


@rule("environment", "command", "mlflow", "wandb")
def _environment_fits(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    # The place of the spec; without a command, the variables by which the script knows of it.
    trackers = [
        *(request.mlflow.variables if request.mlflow else ()),
        *(request.wandb.variables if request.wandb else ()),
    ]
    own = _MARKS_OF_A_LAUNCH + (len(trackers) if request.command is None else 1)
    yield from more_than_fit(
        "environment", request.environment, limit=_MAX_ENVIRONMENT, own=own, named="variables", fix=INTO_A_FILE
    )


@rule("debug", "algorithm")
def _a_shell_can_be_opened(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    """Yield why no shell could be opened in it.

    Source: https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html (Considerations)
    """
    if not request.debug:
        return
    if defaults.shells is False:
        yield Problem(
            field="debug",
            found="true",
            problem="needs shells, and this deployment has none: the job's role may not talk to Session Manager",
            fix="Have it deployed with them: cdk deploy --all -c shells=true. Or remove debug.",
        )
    if request.algorithm is not None:
        yield Problem(
            field="debug",
            found="true",
            problem=f"is given with algorithm: {request.algorithm}; AWS opens no shell in its algorithms' containers",
            fix="Remove it, or train in an image or framework with a command.",
        )


NO_RUNNER: Final = (
    "has no effect without a command: the image's own entry point runs, and nothing of Spotkeep beside it"
)


@rule("backend", "command", "image", "framework", "algorithm")
def _something_runs(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.command is not None:
        return
    if request.backend == "ec2":
        yield Problem(
            field="command",
            found="nothing",
            problem="is required with backend: ec2: an image's own entry point runs on SageMaker alone",
            fix="For example: python train.py",
        )
    elif request.image is None and request.framework is None and request.algorithm is None:
        yield Problem(
            field="command",
            found="nothing",
            problem="is required",
            fix="For example: python train.py. To run an image's own entry point, name it as image, or name an "
            "algorithm of AWS's.",
        )


@rule("command", "metrics", "notify")
def _only_the_runner_gives_it_an_effect(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.command is not None:
        return
    for name, metric in request.metrics.items():
        if metric.pattern is None or metric.step is not None or metric.goal is not None:
            yield Problem(
                field=f"metrics.{name}",
                found=outlined(metric),
                problem=NO_RUNNER,
                fix="Give the pattern alone: SageMaker then has the metric in CloudWatch. Or remove it.",
            )
    if NotificationKind.CHECKPOINT_STALE in request.notify:
        yield Problem(
            field="notify",
            found=NotificationKind.CHECKPOINT_STALE.value,
            problem=NO_RUNNER,
            fix="Remove it from the list: checkpoints of an image are its own, and nothing reports them.",
        )


_BY_THE_RUNNER: Final[Mapping[str, str]] = {
    "source": "Remove it: the image holds its program. For a script of yours add command.",
    "install": "Remove it: packages are installed before a command. Add command, or take an image that holds them.",
    "setup": "Remove it, or add command.",
    "arguments": "Remove it: an image's own entry point reads /opt/ml/input/config/hyperparameters.json.",
    "pause_at_step": "Remove it: the library in a script pauses. Add command, and save with Spotkeep's library.",
    "distributed": "Remove it: an image's own entry point starts its ranks itself. Or add command.",
    "stuck": "Remove it: the runner beside a command sees the output. Add command.",
    "checkpoint_stale": "Remove it: checkpoints of an image are its own, and nothing reports them.",
}
"""Fields that only Spotkeep's runner in the job gives an effect to, and their remedies."""


RULES: Final[tuple[Rule, ...]] = (
    excluded(
        "pause_at_step",
        where=lambda request: not request.checkpoints,
        reads=("checkpoints",),
        problem="is given with checkpoints: false, and a pause is gone on from with a checkpoint",
        fix="Remove pause_at_step, or set checkpoints: true.",
    ),
    *(
        excluded(field, where=lambda request: request.command is None, reads=("command",), problem=NO_RUNNER, fix=fix)
        for field, fix in _BY_THE_RUNNER.items()
    ),
    _hyperparameters_fit,
    _environment_fits,
    _a_shell_can_be_opened,
    _something_runs,
    _only_the_runner_gives_it_an_effect,
)
_PYTHON: Final = re.compile(r"(.*/)?python[0-9.]*")
_ONLY_FOR_A_SHELL: Final = re.compile(r"&&|\|\|?|;|&|>>?|<|[0-9]?>&[0-9]|\$\{?[A-Z_][A-Z0-9_]*\}?(/.*)?|\$\(.*\)")
_OPTION_AND_VALUE: Final = re.compile(r"--[a-z][\w-]* +\S")
_LOOKS_SECRET: Final = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|(API|ACCESS|PRIVATE)_?KEY)(_|$)", re.I
)


def command_warnings(request: JobRequest) -> Iterator[str]:
    """Yield probable mistakes of a command, a setup or an environment."""
    yield from _words_and_blocks(request)
    for field, lines in (("command", request.command), ("setup", request.setup)):
        if isinstance(lines, str):
            yield from _failures_passed_over(lines, field=field)
    secrets = sorted(name for name in request.environment if _LOOKS_SECRET.search(name))
    if secrets:
        yield (
            f"environment {', '.join(secrets)} may be a secret; all who may describe the job can read it. "
            "Store each in AWS Secrets Manager and name it in secrets instead."
        )
    if request.wandb is not None and not {"WANDB_API_KEY", "WANDB_MODE"} & {
        *request.environment,
        *(request.secrets or ()),
    }:
        yield (
            "wandb is given without an API key, so its client cannot log in. Store the key in AWS Secrets Manager and "
            "name it in secrets: WANDB_API_KEY."
        )
    if request.command is None and request.backend == "sagemaker":
        yield (
            "without a command the image's own entry point runs, and nothing of Spotkeep beside it: no save on a "
            "notice, no steps and progress, no metrics in describe, no warning of a stale checkpoint."
        )
        if request.checkpoints and request.algorithm is None:
            yield (
                "whether it goes on after an interruption is the image's own doing: it has to save to "
                "/opt/ml/checkpoints and to load from there."
            )


def _words_and_blocks(request: JobRequest) -> Iterator[str]:
    command = request.command or ()
    if isinstance(command, str):
        names = [*list(request.hyperparameters)[:3], *(["..."] if len(request.hyperparameters) > 3 else [])]
        if names and request.arguments != "none" and not reads_hyperparameters(command):
            yield (
                'command is a block of lines that uses neither "$@" nor SM_HPS, so the hyperparameters '
                f'({", ".join(names)}) reach no program as arguments. Write python train.py "$@" where they belong; or '
                "arguments: none, if the script reads them itself."
            )
    elif second := _second_python(command):
        yield (
            f"command gives {' '.join(command[:2])} the words {' '.join(second)} as arguments. If these are two "
            "commands, write each on a line of its own below `command: |`."
        )
    else:
        runs_a_shell = any(PurePosixPath(word).name in SHELLS for word in command)
        for word in dict.fromkeys(command) if not runs_a_shell else ():
            if _ONLY_FOR_A_SHELL.fullmatch(word):
                yield (
                    f"command gives its program the word {word} as it is: no shell reads the words of a command. For a "
                    "shell write a text of several lines, `command: |`."
                )
            elif _OPTION_AND_VALUE.match(word):
                yield (
                    f"command gives its program {word!r} as one word, which most read as no option. Make it two words."
                )


def _failures_passed_over(block: str, *, field: str) -> Iterator[str]:
    if waits_for_anything(block):
        yield (
            f"{field} has a bare `wait`, which ends with code 0 whatever the programs in the "
            "background end with. Keep the id of each and wait for it: python a.py & a=$!; python b.py & b=$!; "
            "wait $a; wait $b."
        )
    if (program := passed_over(block)) is not None:
        yield (
            f"{field} goes on with its next line if {program[:80]} fails, since && stands behind it. Write each "
            "program on a line of its own: the first that fails then ends the block."
        )


def _second_python(words: Sequence[str]) -> Sequence[str]:
    """Return the words of a second Python script in a command that begins with one. YAML joins lines so."""
    if len(words) < 4 or not _PYTHON.fullmatch(words[0]) or not _is_script(words[1]):
        return ()
    if any(word in {"--", "--no-python", "--no_python"} for word in words):
        return ()
    pairs = (words[at : at + 2] for at in range(2, len(words) - 1))
    return next((pair for pair in pairs if _PYTHON.fullmatch(pair[0]) and _is_script(pair[1])), ())


def _is_script(word: str) -> bool:
    return word.endswith(".py") or word == "-m"


@dataclass(frozen=True, kw_only=True)
class SpecObject:
    """The object in S3 from which SageMaker's jobs get their spec.

    Attributes:
        uri: Its `s3://` address. The hash of its content is a part of the address.
        content: The spec, as its runner reads it.
    """

    uri: str
    content: bytes


def training_spec_of(
    request: JobRequest, *, environments: str | None = None, number: RunNumber | None = None
) -> TrainingSpec:
    """Write the spec of a run's jobs.

    Args:
        request: The validated request, defaults filled in.
        environments: The address in S3 of installed packages. None on EC2, where the volume keeps them.
        number: The run's number in its group, on EC2.
    """
    mlflow = request.mlflow
    return TrainingSpec(
        command=request.command or (),
        environment=request.environment,
        secrets=request.secrets or {},
        hyperparameters=request.hyperparameters,
        arguments=request.arguments,
        install=request.install if isinstance(request.install, str) else NO_INSTALLATION,
        requirements=request.requirements,
        setup=request.setup or (),
        environments=environments,
        warm_pool=request.keep_alive > 0,
        source=_source(request),
        metrics={
            name: SearchedMetric(metric.pattern, metric.step)
            for name, metric in request.metrics.items()
            if metric.pattern
        },
        pause_at_step=request.pause_at_step,
        stuck=None if request.stuck is None else _hang_limit(request.stuck),
        number=number,
        mlflow=None if mlflow is None else MlflowPlace(mlflow.tracking_uri, mlflow.experiment),
        wandb=None if request.wandb is None else WandbPlace(request.wandb.project, request.wandb.entity),
        distributed=ranks_of(request.distributed),
    )


def number_in(group: RunGroup | None) -> RunNumber:
    """Return a run's number in its group. Without a group it is the first and only one."""
    return RunNumber(1, 1) if group is None else RunNumber(group.index, group.size)


def spec_object(spec: TrainingSpec, *, prefix: str) -> SpecObject:
    """Return the object of a spec.

    Args:
        spec: The spec.
        prefix: The place of the run's specs, with a closing slash.
    """
    content = encode_spec(spec)
    return SpecObject(uri=f"{prefix}{spec_file_name(content)}", content=content)


def _hang_limit(stuck: StuckRequest) -> HangLimit:
    at_most = stuck.at_most or DEFAULT_STUCK_RESTARTS
    return HangLimit(after_seconds=stuck.after, restart=stuck.restart, at_most=at_most)


def _source(request: JobRequest) -> JobSource | None:
    if isinstance(request.source, GitSource):
        return JobSource(git_url=request.source.git, git_commit=request.source.commit, git_secret=request.source.secret)
    if request.source is None:
        return None
    return JobSource(uri=request.source.uri, sha256=request.source.sha256)
