"""What is allowed but probably not meant, in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import PurePosixPath
from typing import Final

from spotkeep_fleet.ecr_images import ecr_registry, is_in_public_gallery, names_a_registry
from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.document.durations import format_duration
from spotkeep_jobs.document.fallbacks import price_of, types_of
from spotkeep_jobs.document.local_disks import has_local_disks, local_disks_gb
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.rules.ec2 import ec2_warnings
from spotkeep_jobs.document.rules.queues import queue_warnings
from spotkeep_jobs.document.shell_text import SHELLS, passed_over, reads_hyperparameters, waits_for_anything
from spotkeep_jobs.document.training_image import image_warnings, needs_gpus, patch_warnings, processor_of

DEFAULT_ACCOUNT_LIMIT_SECONDS: Final = 432_000
"""A new account's quota for the longest training job: 5 days."""


_PYTHON: Final = re.compile(r"(.*/)?python[0-9.]*")
_ONLY_FOR_A_SHELL: Final = re.compile(r"&&|\|\|?|;|&|>>?|<|[0-9]?>&[0-9]|\$\{?[A-Z_][A-Z0-9_]*\}?(/.*)?|\$\(.*\)")
_OPTION_AND_VALUE: Final = re.compile(r"--[a-z][\w-]* +\S")
_LOOKS_SECRET: Final = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|(API|ACCESS|PRIVATE)_?KEY)(_|$)", re.I
)


def warnings_of(request: JobRequest, defaults: DeploymentDefaults, *, today: date | None = None) -> Iterator[str]:
    """Yield what is allowed but probably not meant, in sentences.

    Args:
        request: a request that was read whole, defaults filled in.
        defaults: what the deployment fills in and insists on.
        today: the day of the launch; None for a document that was accepted before.
    """
    yield from _command_warnings(request)
    for field, lines in (("command", request.command), ("setup", request.setup)):
        if isinstance(lines, str):
            yield from _failures_passed_over(lines, field=field)
    if request.max_run > DEFAULT_ACCOUNT_LIMIT_SECONDS and defaults.max_run_limit_seconds is None:
        yield (
            f"max_run {format_duration(request.max_run)} is above the {format_duration(DEFAULT_ACCOUNT_LIMIT_SECONDS)} "
            "that AWS allows a new account; SageMaker refuses the job unless that quota was raised."
        )
    secrets = sorted(name for name in request.environment if _LOOKS_SECRET.search(name))
    if secrets:
        yield (
            f"environment {', '.join(secrets)} may be a secret; all who may describe the job can read it. "
            "Read secrets in the script from AWS Secrets Manager."
        )
    if request.capacity == "on-demand" and request.keep_alive:
        yield (
            f"keep_alive {format_duration(request.keep_alive)} is billed after the job ends, and a new account's "
            "warm-pool quota is 0: the job then runs and no pool is kept."
        )
        if len(request.types) > 1:
            yield (
                "keep_alive with several instance types: AWS does not say whether such a job takes a warm pool. Name "
                "the one type whose pools it shall take and leave."
            )
    if request.backend == "ec2":
        yield from ec2_warnings(request)
    if request.queue is not None:
        yield from queue_warnings(request)
    own_disks = [each for each in types_of(request) if request.backend == "sagemaker" and has_local_disks(each)]
    if own_disks and request.volume_size_gb != JobRequest.model_fields["volume_size_gb"].default:
        disks = local_disks_gb(own_disks[0])
        yield (
            f"volume_size_gb {request.volume_size_gb:,} has no effect on {own_disks[0]}: SageMaker gives it no volume, "
            f"and its own disks are its storage{'' if disks is None else f', {disks:,} GB'}."
        )
    if request.instance_count > 1:
        yield (
            f"instance_count {request.instance_count}: rehearsals have one host, so nothing has shown yet that this "
            f"job comes back from an interruption on {request.instance_count} hosts. Begin with a short run, and stop "
            "and resume it once."
        )
    image = request.image
    registry = "" if image is None or not names_a_registry(image) else image
    elsewhere = registry and ecr_registry(registry) is None and not is_in_public_gallery(registry)
    if request.backend == "sagemaker" and elsewhere and defaults.training_network is not False:
        within = "the deployment's VPC" if defaults.training_network else "a VPC (the setting training_subnet_ids) only"
        yield (
            f"image {image} is not in Amazon ECR: SageMaker pulls it through {within}, and without a login. The VPC "
            "must reach the registry, and a public authority must have issued its certificate."
        )
    types = types_of(request)
    if request.image is not None:
        yield from image_warnings(request.image, instance_types=types)
        if today is not None:
            yield from patch_warnings(request.image, today=today)
    others = [each for each in types if processor_of(each) != "gpu"]
    if request.algorithm is not None and needs_gpus(request.algorithm) and others:
        yield f"algorithm {request.algorithm} trains on NVIDIA GPUs alone; {others[0]} has none."
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
    price = price_of(types, prices=defaults.prices)
    if price is not None:
        on_demand_usd = request.seconds_on_demand / 3_600 * price * request.instance_count
        # Without `work` or a deadline, max_run is a limit: how long the training takes is not known.
        work_is_known = request.deadline is not None or (request.capacity == "on-demand" and request.work is not None)
        if work_is_known and request.max_cost is not None and request.max_cost < on_demand_usd:
            before = "its work is done" if request.deadline is None else "its deadline is kept"
            yield (
                f"max_cost {request.max_cost:.2f} USD may end the run before {before}: all of its work on demand would "
                f"cost {on_demand_usd:.2f} USD."
            )
    if request.capacity != "on-demand" and not request.checkpoints and request.backend == "sagemaker":
        yield "spot without checkpoints starts over after an interruption."


def _command_warnings(request: JobRequest) -> Iterator[str]:
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
    """Return the words of a second Python script in a command that begins with one: lines that YAML has joined."""
    if len(words) < 4 or not _PYTHON.fullmatch(words[0]) or not _is_script(words[1]):
        return ()
    if any(word in {"--", "--no-python", "--no_python"} for word in words):
        return ()
    pairs = (words[at : at + 2] for at in range(2, len(words) - 1))
    return next((pair for pair in pairs if _PYTHON.fullmatch(pair[0]) and _is_script(pair[1])), ())


def _is_script(word: str) -> bool:
    return word.endswith(".py") or word == "-m"
