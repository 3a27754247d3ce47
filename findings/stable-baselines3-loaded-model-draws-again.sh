#!/usr/bin/env bash
# stable-baselines3 2.9.2 with torch 2.13.0: a model that was made with a seed sets that seed again when it is loaded, in torch, NumPy and the
# environment. So after each interruption `learn(reset_num_timesteps=False)` takes the first random actions once more, in the first worlds
# once more. A good guess is that the exploration goes on, as the steps do. Without a seed the actions are others; so they are after
# `set_random_seed` with another one. Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" stable-baselines3==2.9.2 gymnasium==1.4.0 torch==2.13.0 numpy==2.4.6
cd "$folder"
seen="$(PYTHONPATH="$folder" python3 -W ignore - <<'PYTHON'
import gymnasium
import numpy
from stable_baselines3 import SAC


class Worlds(gymnasium.Env):
    """Draws a world for each episode of four steps, and keeps worlds and actions."""

    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self):
        self.worlds, self.actions = [], []

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.world = self.np_random.uniform(-1, 1, 1).astype(numpy.float32)
        self.worlds.append(self.world.item())
        self.left = 4
        return self.world, {}

    def step(self, action):
        self.actions.append(float(action[0]))
        self.left -= 1
        return self.world, -float(abs(action - self.world)[0]), self.left == 0, False, {}


def again(seed, seed_of_load=None):
    first, then = Worlds(), Worlds()
    model = SAC("MlpPolicy", first, seed=seed, learning_starts=1000)
    model.learn(12)
    model.save("model")
    model.save_replay_buffer("replay")
    loaded = SAC.load("model", env=then)
    loaded.load_replay_buffer("replay")
    if seed_of_load is not None:
        loaded.set_random_seed(seed_of_load)
    loaded.learn(12, reset_num_timesteps=False)
    actions = sum(one == other for one, other in zip(first.actions, then.actions))
    worlds = len({*first.worlds} & {*then.worlds})
    return f"{actions} of 12 actions and {worlds} of {len({*first.worlds})} worlds again, at step {loaded.num_timesteps}"


print("seed 1:", again(1))
print("no seed:", again(None))
print("seed 1, then 2:", again(1, 2))
PYTHON
)"
echo "$seen"
expected="seed 1: 12 of 12 actions and 4 of 4 worlds again, at step 24
no seed: 0 of 12 actions and 0 of 4 worlds again, at step 24
seed 1, then 2: 0 of 12 actions and 0 of 4 worlds again, at step 24"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was: $expected" >&2; exit 1; }
