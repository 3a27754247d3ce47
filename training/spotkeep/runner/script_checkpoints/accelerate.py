"""The folder of accelerate's `save_state` under any name, such as `checkpoints/checkpoint_4`, `epoch_3`, `step_500`.

Source: `save_accelerator_state` and `load_accelerator_state`, accelerate 1.
"""

from __future__ import annotations

import re

from .folder import Folder, Kind, Series
from .trainer import has_weights, json_problem, weights_problem

_RANDOM_STATE = re.compile(r"random_states_([0-9]+)\.pkl")
_ITS_OWN = re.compile(r"random_states_[0-9]+\.pkl|custom_checkpoint_[0-9]+\.pkl|dl_state_dict(_[0-9]+)?\.bin")
_NUMBERED = re.compile(r"(optimizer|scheduler)(?:_([0-9]+))?\.bin|(custom_checkpoint)_([0-9]+)\.pkl")
_IN_EACH = re.compile(
    r"(model|pytorch_model)(_[0-9]+)?\.(safetensors|bin)|(optimizer|scheduler|sampler|dl_state_dict)(_[0-9]+)?\.bin"
    r"|custom_checkpoint_[0-9]+\.pkl|scaler\.pt|(pytorch_model_fsdp|optimizer)(_[0-9]+)?(\.bin)?"
)
"""The files of each rank are not among them, because the next machine may have fewer."""


def _recognises(folder: Folder) -> bool:
    own = any(_ITS_OWN.fullmatch(name) for name in folder.files)
    # One that holds others of the kind is no checkpoint itself.
    return own and not any(_recognises(inner) for inner in folder.folders.values())


def _problem(folder: Folder, series: Series) -> str | None:
    ranks = {int(match[1]) for name in folder.names if (match := _RANDOM_STATE.fullmatch(name))}
    missing = set(range(max(len(ranks), 1))) - ranks
    if missing:
        return f"random_states_{min(missing)}.pkl is missing"
    gone = frozenset().union(*(each.names for each in series.earlier[-1:])) - folder.names
    for name in sorted(gone):
        # What a later one does not have either the script does not prepare any more.
        if _IN_EACH.fullmatch(name) and all(name in each.names for each in series.after):
            return f"{name} is missing, which {series.earlier[-1].path.name} has"
    counts: dict[str, set[int]] = {}
    for name in folder.names:
        if match := _NUMBERED.fullmatch(name):
            counts.setdefault(match[1] or match[3], set()).add(int(match[2] or match[4] or 0))
    for part, numbers in sorted(counts.items()):
        if numbers != set(range(len(numbers))):
            return f"{part} {min(set(range(len(numbers))) - numbers)} is missing"
    if "optimizer" in counts and not series.earlier and not has_weights(folder):
        return "its weights are missing"
    return json_problem(folder) or weights_problem(folder)


ACCELERATE = Kind(_recognises, _problem)
