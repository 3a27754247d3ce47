#!/usr/bin/env bash
# stable-baselines3 2.9.2 with torch 2.13.0: an EvalCallback that is made again, in the folder that it had, forgets the best reward and its
# evaluations. The first evaluation after a resume takes the place of `best_model.zip`, though it is worse, and the first save of
# `evaluations.npz` that of all evaluations before. `Monitor` and the logger's `progress.csv` begin their files anew, too. A good guess is
# that a callback with a folder of its own goes on in it. Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" stable-baselines3==2.9.2 gymnasium==1.4.0 torch==2.13.0 numpy==2.4.6
cd "$folder"
cat > "$folder/train.py" <<'PYTHON'
import pathlib
import sys

import gymnasium
import numpy
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor

REWARD = float(sys.argv[1])


class Constant(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 4
        return numpy.zeros(1, numpy.float32), {}

    def step(self, action):
        self.left -= 1
        return numpy.zeros(1, numpy.float32), REWARD, self.left == 0, False, {}


logger = configure("log", ["csv"])
environment = Monitor(Constant(), "log/training")
saved = pathlib.Path("model.zip")
model = A2C.load(saved, env=environment) if saved.exists() else A2C("MlpPolicy", environment)
model.set_logger(logger)
evaluate = EvalCallback(Monitor(Constant()), best_model_save_path="log", log_path="log", eval_freq=10, n_eval_episodes=2, verbose=0)
model.learn(20, callback=evaluate, reset_num_timesteps=False, log_interval=1)
model.save(saved)
evaluations = numpy.load("log/evaluations.npz")
episodes = len(pathlib.Path("log/training.monitor.csv").read_text().splitlines()) - 2
logged = len(pathlib.Path("log/progress.csv").read_text().splitlines()) - 1
print(
    f"reward {REWARD}: best model of step {A2C.load('log/best_model').num_timesteps}, evaluations {evaluations['timesteps'].tolist()}, "
    f"{episodes} episodes, {logged} lines of the log"
)
PYTHON
export PYTHONPATH="$folder"
seen="$(python3 -W ignore train.py 1; python3 -W ignore train.py -1)"
echo "$seen"
expected="reward 1.0: best model of step 10, evaluations [10, 20], 5 episodes, 6 lines of the log
reward -1.0: best model of step 30, evaluations [30, 40], 5 episodes, 6 lines of the log"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was: $expected" >&2; exit 1; }
