"""Hugging Face's `checkpoint-<step>`, its files, and the effect of each missing one on a resume.

The Trainer goes on silently without the optimizer, the learning rate's schedule or the random states, since
`save_only_model=True` writes none of them. The setting is in `training_args.bin`, in the state, or shows in the
checkpoints before. Source: `_save_checkpoint` and `_load_optimizer_and_scheduler`, transformers 4 and 5.
"""

from __future__ import annotations

import re
from typing import Any

from .containers import member_of_zip
from .folder import Folder, Kind, Series
from .pickles import plain_values
from .reading import json_object, open_unnoticed
from .shards import shards_in

_NAME = re.compile(r"checkpoint-[0-9]+")
_STATE = "trainer_state.json"
_ARGUMENTS = "training_args.bin"
_MOST_ARGUMENTS_BYTES = 2**22
_RANDOM_STATE = re.compile(r"rng_state(?:_([0-9]+))?\.pth")
_RESUMED_FROM = {
    "its optimizer": re.compile(
        r"optimizer(_[0-9]+)?(\.pt|\.bin)?|rank[0-9]+-of-[0-9]+-optimizer\.pt|optimizer\.pt_.*"
    ),
    "its scheduler.pt": re.compile(r"scheduler\.pt"),
    "its random state": _RANDOM_STATE,
    "its scaler.pt": re.compile(r"scaler\.pt"),
}
_NOT_IN_EACH = "its scaler.pt"
"""Only a training in 16 bits has it."""
_IN_DEEPSPEEDS_FOLDER = ("its optimizer", "its scheduler.pt")
_DEEPSPEED = re.compile(r"global_step[0-9]+|zero_to_fp32\.py")
_JSON = frozenset({_STATE, "config.json", "generation_config.json", "adapter_config.json", "tokenizer.json",
                   "tokenizer_config.json", "special_tokens_map.json", "preprocessor_config.json"})  # fmt: skip
_NO_WEIGHTS = re.compile(
    r"(training_args|(optimizer|scheduler|sampler|dl_state_dict)(_[0-9]+)?)\.bin|(optimizer|scheduler|scaler)\.pt(_.*)?"
    r"|rng_state(_[0-9]+)?\.pth|rank[0-9]+-of-[0-9]+-optimizer\.pt|(random_states|custom_checkpoint)_[0-9]+\.pkl|latest"
    r"|.*\.(json|jsonl|txt|md|jinja|model|py|ya?ml|csv|log|tiktoken)|\..*"
)
_FOLDER_OF_NO_WEIGHTS = re.compile(r"optimizer(_[0-9]+)?")


def has_weights(folder: Folder) -> bool:
    """Say whether there is a file that may hold weights. Any file counts that is not known to hold other data."""
    if any(not _NO_WEIGHTS.fullmatch(name) for name in folder.files | folder.links):
        return True
    return any(
        has_weights(inner) for name, inner in folder.folders.items() if not _FOLDER_OF_NO_WEIGHTS.fullmatch(name)
    )


def json_problem(folder: Folder) -> str | None:
    """Say which of the JSON files that Hugging Face's libraries write is cut off."""
    cut = (name for name in sorted(folder.files & _JSON) if json_object(folder.path / name) is None)
    return next((f"{name} is not whole" for name in cut), None)


def weights_problem(folder: Folder) -> str | None:
    """Name the missing part of the weights, a shard or the base model of an adapter."""
    for shards in shards_in(folder):
        if shards.problem:
            return shards.problem
    if folder.names & {"adapter_model.safetensors", "adapter_model.bin"} and "adapter_config.json" not in folder.names:
        return "adapter_config.json is missing"
    return None


def _recognises(folder: Folder) -> bool:
    if not _NAME.fullmatch(folder.path.name):
        return False
    if _STATE in folder.names or any(_RANDOM_STATE.fullmatch(name) for name in folder.files):
        return True
    if _ARGUMENTS in folder.files:
        arguments = _arguments(folder)
        return arguments is None or "save_strategy" in arguments  # scripts older than the Trainer have that file, too
    if "config.json" not in folder.files or has_weights(folder):
        return False
    config = json_object(folder.path / "config.json")
    return config is None or "transformers_version" in config


def _problem(folder: Folder, series: Series) -> str | None:
    if _STATE not in folder.names:
        # A script may save no more than the model each time, by itself.
        written = any(_STATE in each.names for each in series.earlier)
        by_itself = any(map(_is_model_alone, [*series.before, *series.after]))
        return None if by_itself and not written else f"its {_STATE} is missing"
    problem = json_problem(folder)
    if problem:
        return problem
    if not has_weights(folder) and (not series.earlier or any(map(has_weights, series.earlier))):
        return "its weights are missing"
    return weights_problem(folder) or _resume_problem(folder, series)


def _resume_problem(folder: Folder, series: Series) -> str | None:
    arguments = _arguments(folder) or {}
    if arguments.get("save_only_model") is True:
        return None
    there = _resumed_from(folder)
    complete = bool(there) or arguments.get("save_only_model") is False
    deepspeed = any(_DEEPSPEED.fullmatch(name) for name in folder.names)
    for part in _RESUMED_FROM:
        alone = complete and part != _NOT_IN_EACH and not (deepspeed and part in _IN_DEEPSPEEDS_FOLDER)
        if part in there:
            continue
        if any(part in _resumed_from(each) for each in filter(_has_all_but_state, series.earlier)):
            return f"{part} is missing"
        # What another one does not have either this script does not write.
        if alone and all(
            part in _resumed_from(each) for each in filter(_has_all_but_state, [*series.before, *series.after])
        ):
            return f"{part} is missing"
    return _ranks_problem(folder, arguments.get("num_processes"))


def _is_model_alone(folder: Folder) -> bool:
    return _STATE not in folder.names and _ARGUMENTS in folder.files and has_weights(folder)


def _has_all_but_state(folder: Folder) -> bool:
    return (
        _STATE in folder.names and has_weights(folder) and (_arguments(folder) or {}).get("save_only_model") is not True
    )


def _resumed_from(folder: Folder) -> frozenset[str]:
    return frozenset(
        part for part, pattern in _RESUMED_FROM.items() if any(pattern.fullmatch(name) for name in folder.names)
    )


def _ranks_problem(folder: Folder, processes: Any) -> str | None:
    matches = (_RANDOM_STATE.fullmatch(name) for name in folder.names)
    ranks = {int(match[1]) for match in matches if match and match[1]}
    if not ranks:
        return None
    count = max(len(ranks), processes) if isinstance(processes, int) and processes < 2**16 else len(ranks)
    missing = set(range(count)) - ranks
    return f"rng_state_{min(missing)}.pth is missing" if missing else None


def _arguments(folder: Folder) -> dict[str, Any] | None:
    """Read the Trainer's arguments from a pickle, where each text is followed by its value. None for any other file."""
    if _ARGUMENTS not in folder.files:
        return None
    with open_unnoticed(folder.path / _ARGUMENTS) as file:
        content = member_of_zip(file, "/data.pkl", most_bytes=_MOST_ARGUMENTS_BYTES)
    if content is None:
        return None
    values = plain_values(content)
    return {str(name): value for name, value in zip(values, values[1:])}


TRAINER = Kind(_recognises, _problem)
