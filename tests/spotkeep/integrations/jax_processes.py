"""One process of a JAX training over several. Its arrays are divided over two devices of each process.

Run as a script it takes one job as JSON: the directory, the number of processes, this one's, the port of the first, the
steps to train. It prints one line of JSON: the step it began at, and every array as a whole in hexadecimal digits.
"""

from __future__ import annotations

import json
import os
import sys

os.environ.update(XLA_FLAGS="--xla_force_host_platform_device_count=2", JAX_PLATFORMS="cpu")

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from spotkeep import Checkpointer
from spotkeep.integrations.jax import PytreeState

OPTIMIZER = optax.adamw(0.01)
DIVISIONS = {
    "rows": PartitionSpec("process"),
    "columns": PartitionSpec(None, "process"),
    "both": PartitionSpec("process", "device"),
    "narrow": PartitionSpec("device", "process"),
    "everywhere": PartitionSpec(),
}
DTYPES = {"narrow": jnp.bfloat16}


def main() -> None:
    job = json.loads(sys.argv[1])
    if job["processes"] > 1:
        jax.distributed.initialize(f"127.0.0.1:{job['port']}", job["processes"], job["process"])
    mesh = jax.make_mesh((job["processes"], 2), ("process", "device"))
    shardings = {name: NamedSharding(mesh, division) for name, division in DIVISIONS.items()}
    layers = {name: layer(name, index, shardings[name]) for index, name in enumerate(DIVISIONS)}
    training = PytreeState({"layers": layers, "optimizer": OPTIMIZER.init(layers), "key": jax.random.key(7)})
    with Checkpointer({"training": training}, job["directory"], every_steps=2) as checkpointer:
        began_at = checkpointer.step
        for step in checkpointer.steps(job["steps"]):
            training.value = train(training.value, step)
    leaves, _ = jax.tree_util.tree_flatten_with_path((training.value["layers"], training.value["optimizer"]))
    whole = {jax.tree_util.keystr(path): bits(leaf) for path, leaf in leaves}
    print(json.dumps({"began_at": began_at, "arrays": whole}), flush=True)


def layer(name: str, seed: int, sharding: NamedSharding) -> jax.Array:
    content = np.random.default_rng(seed).normal(size=(48, 96)).astype(DTYPES.get(name, jnp.float32))
    return jax.make_array_from_callback(content.shape, sharding, lambda index: content[index])


@jax.jit
def train(value: dict, step: int) -> dict:
    """Elementwise, so that the bits do not depend on the number of processes."""
    key, own = jax.random.split(value["key"])
    gradients = jax.tree.map(lambda array: jnp.sin(array) * (step + 1), value["layers"])
    updates, optimizer = OPTIMIZER.update(gradients, value["optimizer"], value["layers"])
    layers = optax.apply_updates(value["layers"], updates)
    drawn = jax.random.uniform(own)
    layers = jax.tree.map(lambda array: (array + drawn).astype(array.dtype), layers)
    return {"layers": layers, "optimizer": optimizer, "key": key}


def bits(array: jax.Array) -> str:
    whole = multihost_utils.process_allgather(array, tiled=True) if not array.is_fully_addressable else array
    return np.asarray(whole).tobytes().hex()


if __name__ == "__main__":
    main()
