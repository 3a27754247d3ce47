"""The random numbers of a whole process as one object, for Python, NumPy, and torch on the CPU and on each GPU.

Only the libraries that the script has imported take part. A generator of the script's own (a `numpy.random.Generator`,
a `torch.Generator`) is not among them, and goes into the state itself.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from spotkeep.errors import MissingLibraryError
from spotkeep.loaded import loaded

_logger = logging.getLogger("spotkeep")

_SEED_SEQUENCE = "seed_sequence"
_CHILDREN_AT_ONCE = 1000


class RandomStates:
    """Every global random state, for the state of a `Checkpointer`.

    ```python
    state = {"model": model, "optimizer": optimizer, "random": spotkeep.RandomStates()}
    ```
    """

    def state_dict(self) -> dict[str, Any]:
        """Give the states as they are now, by the names of their libraries."""
        return capture_random_states()

    def load_state_dict(self, states: dict[str, Any]) -> None:
        """Go back to states that `state_dict` gave.

        Args:
            states: The value of `state_dict`.

        Raises:
            MissingLibraryError: If a library of the states is not installed here.
        """
        restore_random_states(states)


class RandomLane:
    """Random states apart from those of the process. Inside a `with` block draws come from them.

    Args:
        states: Its beginning, as `capture_random_states` gives it.
    """

    def __init__(self, states: dict[str, Any]) -> None:
        self._states = states
        self._outside: dict[str, Any] = {}

    def __enter__(self) -> None:
        self._outside = capture_random_states(devices=False)
        restore_random_states(self._states)

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._states = capture_random_states(devices=False)
        restore_random_states(self._outside)


def bit_generator_state(generator: Any) -> dict[str, Any]:
    """Give the state of a `BitGenerator` of NumPy, with that of the sequence its children are seeded from.

    NumPy's own state leaves out how many children were spawned, so the first ones would come once more.
    """
    state: dict[str, Any] = generator.state
    sequence: Any = getattr(generator, "seed_seq", None)
    if type(sequence).__name__ != "SeedSequence":
        return state
    if not (sequence.n_children_spawned or _takes_a_sequence(generator)):
        return state
    return {**state, _SEED_SEQUENCE: dict(sequence.state)}


def set_bit_generator_state(generator: Any, state: dict[str, Any]) -> None:
    """Give a `BitGenerator` the state that `bit_generator_state` gave.

    Raises:
        ValueError: It is the state of another kind of generator.
    """
    known = dict(state)
    saved = known.pop(_SEED_SEQUENCE, None)
    generator.state = known
    if saved is None:
        return
    live: Any = generator.seed_seq
    missing = saved["n_children_spawned"] - live.n_children_spawned
    if missing >= 0 and repr({**live.state, "n_children_spawned": 0}) == repr({**saved, "n_children_spawned": 0}):
        # The script may hold the sequence itself.
        while missing > 0:
            missing -= len(live.spawn(min(missing, _CHILDREN_AT_ONCE)))
    elif _takes_a_sequence(generator):
        generator.__setstate__((generator.state, _import("numpy.random").SeedSequence(**saved)))
    else:
        raise ValueError(
            "its children were spawned from another seed, and this NumPy cannot replace that: seed the generator alike "
            "at each start, or use NumPy 2"
        )


def _takes_a_sequence(generator: Any) -> bool:
    """Say whether this NumPy lets a generator's seed sequence be replaced."""
    return isinstance(generator.__reduce__()[-1], tuple)


def capture_random_states(*, devices: bool = True) -> dict[str, Any]:
    """Give the global random states as plain values and arrays.

    Args:
        devices: Those of GPUs too, where torch has begun to use them.
    """
    version, words, gauss = random.getstate()
    states: dict[str, Any] = {
        "python": {"version": version, "words": struct.pack(f"<{len(words)}I", *words), "gauss": gauss}
    }
    numpy_random = loaded("numpy.random")
    if numpy_random is not None:
        states["numpy"] = numpy_random.get_state(legacy=False)
    torch = loaded("torch")
    if torch is not None:
        states["torch"] = torch.get_rng_state()
        if devices and torch.cuda.is_initialized():
            states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def restore_random_states(states: dict[str, Any]) -> None:
    """Set the global random states to those that `capture_random_states` gave.

    Raises:
        MissingLibraryError: A state belongs to a library that is not installed here.
    """
    python = states["python"]
    words = struct.unpack(f"<{len(python['words']) // 4}I", python["words"])
    random.setstate((python["version"], words, python["gauss"]))
    if "numpy" in states:
        _import("numpy.random").set_state(states["numpy"])
    if "torch" in states:
        torch = _import("torch")
        torch.set_rng_state(states["torch"])
        if "cuda" in states:
            _restore_gpus(torch, states["cuda"])


@contextmanager
def seeded_random_numbers(key: bytes, *, gpu: int | None = None) -> Iterator[None]:
    """Draw random numbers that follow from any bytes inside a `with` block, and leave those of the process alone.

    Args:
        key: The bytes.
        gpu: The number of the GPU whose random numbers follow from them too. None for none.
    """
    outside = capture_random_states(devices=False)
    torch: Any = loaded("torch")
    generator = None if gpu is None else torch.cuda.default_generators[gpu]
    of_gpu = None if generator is None else generator.get_state()
    try:
        seed_random_numbers(key)
        if generator is not None:
            generator.manual_seed(torch.default_generator.initial_seed())
        yield
    finally:
        restore_random_states(outside)
        if generator is not None:
            generator.set_state(of_gpu)


def seeded_random_states(key: bytes) -> dict[str, Any]:
    """Give random states that follow from any bytes."""
    with seeded_random_numbers(key):
        return capture_random_states(devices=False)


def seed_random_numbers(key: bytes) -> None:
    """Set the global random states to some that follow from any bytes."""
    digest = hashlib.blake2b(key, digest_size=64).digest()
    random.seed(digest[:16])
    numpy_random = loaded("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(struct.unpack("<4I", digest[16:32]))
    torch = loaded("torch")
    if torch is not None:
        # torch.manual_seed would queue a call for each GPU that is not used yet, every time.
        torch.default_generator.manual_seed(struct.unpack("<Q", digest[32:40])[0] >> 1)


_GPU_BYTES = 16
_BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


def derived_random_state(saved: Any, seed: bytes) -> Any:
    """Give a random state of the form of another one, that follows from a seed.

    Args:
        saved: The state of a generator of Python, NumPy or torch, or what `capture_random_states` gave.
        seed: The SHA-256 that it follows from.

    Returns:
        The state. None where the form is not that of a random state.
    """
    number = int.from_bytes(seed, "little")
    torch = loaded("torch")
    if torch is not None and isinstance(saved, torch.Tensor):
        return _derived_torch_state(torch, saved, seed)
    if isinstance(saved, list):
        return _each_derived(list(enumerate(saved)), seed, list)
    if isinstance(saved, tuple) and len(saved) == 5 and saved[0] in _BIT_GENERATORS:
        return _numpy_generator(saved[0], number, legacy=True)
    if isinstance(saved, tuple) and len(saved) == 3 and isinstance(saved[1], tuple):
        return random.Random(number).getstate()  # noqa: S311 - it is no secret
    if not isinstance(saved, dict):
        return None
    if saved.get("bit_generator") in _BIT_GENERATORS:
        name = saved["bit_generator"]
        if "has_gauss" in saved:
            return _numpy_generator(name, number, legacy=False)
        state = bit_generator_state(getattr(_import("numpy.random"), name)(number))
        return {key: value for key, value in state.items() if key in saved}
    if set(saved) == {"version", "words", "gauss"}:
        version, words, gauss = random.Random(number).getstate()  # noqa: S311 - it is no secret
        return {"version": version, "words": struct.pack(f"<{len(words)}I", *words), "gauss": gauss}
    return _each_derived(list(saved.items()), seed, dict) if "python" in saved else None


def _each_derived(items: list[tuple[Any, Any]], seed: bytes, kind: type) -> Any:
    """Derive each of several states from a seed of its own. None where one of them is no random state."""
    derived = [
        (key, derived_random_state(value, hashlib.sha256(b"%s %s" % (seed, str(key).encode())).digest()))
        for key, value in items
    ]
    if any(value is None for _, value in derived):
        return None
    return dict(derived) if kind is dict else [value for _, value in derived]


def _derived_torch_state(torch: Any, saved: Any, seed: bytes) -> Any:
    if saved.dtype is not torch.uint8 or saved.dim() != 1:
        return None
    if saved.numel() == _GPU_BYTES:
        # A seed and an offset, eight bytes each.
        return torch.tensor([*seed[:8], *bytes(8)], dtype=torch.uint8)
    made = torch.Generator().manual_seed(int.from_bytes(seed[:8], "little") >> 1).get_state()
    return made if made.numel() == saved.numel() else None


def _numpy_generator(name: str, number: int, *, legacy: bool) -> Any:
    numpy_random = _import("numpy.random")
    return numpy_random.RandomState(getattr(numpy_random, name)(number)).get_state(legacy=legacy)


def _restore_gpus(torch: Any, saved: list[Any]) -> None:
    count = torch.cuda.device_count()
    if count != len(saved):
        _logger.warning(
            "the checkpoint has the random states of %d GPUs and there are %d here: random numbers drawn on a GPU may "
            "differ from those of an undisturbed run",
            len(saved),
            count,
        )
    for device, state in enumerate(saved[:count]):
        torch.cuda.set_rng_state(state, device)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingLibraryError(
            f"the checkpoint holds random states of {name}, which is not installed here ({error}); use an image that "
            "has it"
        ) from error
