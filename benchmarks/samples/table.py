"""The samples, with where they come from, how they are run, how their resume is broken, and the right verdicts.

Each verdict was decided by reading the script, before its rehearsal, and is right for these reasons:

- A script that loads its checkpoint, goes on, and ends with the bits of a run that was left alone: PASS.
- A script that goes on without something that training depends on, and ends with another model: FAIL.
- A script that loads nothing of what it saved: FAIL, also where its result is the same bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Packages:
    """The packages of an environment that several samples share.

    Attributes:
        name: A name for its folder.
        requirements: Requirements of pip, pinned. ``--`` begins a group that is installed after the others, with the
            options that follow it. None for the current environment.
        python: The version of Python.
    """

    name: str
    requirements: tuple[str, ...] = ()
    python: str = "3.11"

    def groups(self) -> Iterator[list[str]]:
        """Return the groups of requirements in their order."""
        for is_mark, group in itertools.groupby(self.requirements, key="--".__eq__):
            if not is_mark:
                yield list(group)


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A change of text that breaks a resume.

    Attributes:
        file: The file in the sample's folder. None for the command.
        pattern: A regular expression.
        replacement: Its replacement.
        times: The number of places that it fits.
        what: The change in words.
    """

    file: str | None = None
    pattern: str
    replacement: str = ""
    times: int = 1
    what: str


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A published training script.

    Attributes:
        name: The row's name.
        repository: OWNER/NAME on GitHub.
        commit: The pinned commit.
        folder: The folder of the repository that becomes the job's folder. Empty for all of it.
        paths: The parts of that folder that are taken. Empty for all.
        script: The script, from the job's folder.
        framework: The framework, for people.
        packages: The packages that it needs.
        data: The name of a writer in ``made_data``. Empty for none.
        command: A line of bash.
        checkpoints: The folder that comes back.
        variables: Environment variables.
        losses: Options of the rehearsal that say when the machine is taken.
        verdict: The right verdict on the script as it is.
        reason: The reason of that.
        broken: The change that breaks its resume.
        broken_verdict: The right verdict on the broken one.
    """

    name: str
    repository: str
    commit: str
    folder: str = ""
    paths: tuple[str, ...] = ()
    script: str
    framework: str
    packages: Packages
    data: str = ""
    command: str
    checkpoints: str = "checkpoints"
    variables: dict[str, str] = field(default_factory=dict)
    losses: tuple[str, ...] = ("--interrupt-at", "60%", "--no-notice")
    verdict: str = "PASS"
    reason: str
    broken: Edit
    broken_verdict: str = "FAIL"


TORCH = Packages(
    name="torch",
    requirements=(
        "torch==2.13.0",
        "torchvision==0.28.0",
        "numpy==2.4.6",
        "tensorboardX==2.6.4",
        "tensorboard==2.21.0",
        "pytorch-ignite==0.5.5",
        "poutyne==1.19.0",
        "timm==1.0.31",
        "accelerate==1.15.0",
        "diffusers==0.42.1",
        "transformers==5.23.0",
        "datasets==5.2.0",
        "lightning==2.6.6",
        "hydra-core==1.3.2",
        "hydra-colorlog==1.2.0",
        "rootutils==1.0.7",
        "rich",
        "gymnasium==1.4.0",
        "stable-baselines3==2.9.2",
        "sentencepiece",
        "matplotlib",
        "tqdm",
    ),
)
CHAINER = Packages(
    name="chainer",
    requirements=(
        "setuptools<60",
        "wheel",
        "numpy==1.23.5",
        "protobuf==3.20.3",
        "matplotlib==3.7.5",
        "six",
        "typing-extensions",
        "filelock",
        "--",
        "--no-build-isolation",
        "chainer==7.8.1",
    ),
)
CURRENT = Packages(name="current")
"""What `make setup-torch setup-jax setup-boosters setup-tensorflow` installs."""

SAMPLES = (
    Sample(
        name="nanogpt",
        repository="karpathy/nanoGPT",
        commit="3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
        script="train.py",
        framework="torch",
        packages=TORCH,
        data="tokens",
        command="python train.py config/made.py",
        checkpoints="out",
        verdict="FAIL",
        reason="goes on, and the random numbers that draw its batches are not in ckpt.pt: another model",
        broken=Edit(
            file="config/made.py",
            pattern=r"'resume' if .*$",
            replacement="'scratch'",
            what="init_from is always 'scratch'",
        ),
    ),
    Sample(
        name="imagenet",
        repository="pytorch/examples",
        commit="77f55b912142e11fcfdf5b530231fb9c52f181e8",
        folder="imagenet",
        script="main.py",
        framework="torch, torchvision",
        packages=TORCH,
        data="imagenet",
        command="cd checkpoints && python ../main.py -a shufflenet_v2_x0_5 -b 16 -j 0 --epochs 5 --seed 1"
        " --resume checkpoint.pth.tar ../images",
        verdict="FAIL",
        reason="goes on, and the random numbers and the order of the data are not in checkpoint.pth.tar: another model",
        broken=Edit(pattern=" --resume checkpoint.pth.tar", what="without --resume"),
    ),
    Sample(
        name="ignite",
        repository="pytorch/ignite",
        commit="de08e799cfb55a6cf4aa778575d6bad725385453",
        folder="examples/mnist",
        script="mnist_save_resume_engine.py",
        framework="pytorch-ignite",
        packages=TORCH,
        data="mnist",
        command="last=$(ls -v out/checkpoint_*.pt 2>/dev/null | tail -1);"
        " python mnist_save_resume_engine.py --epochs 6 --log_dir out --deterministic ${last:+--resume_from $last}",
        checkpoints="out",
        reason="a deterministic engine: its data and random numbers follow from the epoch, and all its objects are saved",
        broken=Edit(
            file="mnist_save_resume_engine.py",
            pattern=r'^        "optimizer": optimizer,\n',
            what="saves and loads no optimizer, which has momentum",
        ),
    ),
    Sample(
        name="makemore",
        repository="karpathy/makemore",
        commit="988aa59e4d8fefa526d06f3b453ad116258398d4",
        script="makemore.py",
        framework="torch",
        packages=TORCH,
        data="names",
        command="python makemore.py -i names.txt -o out --type mlp --num-workers 0 --max-steps 2600"
        " $(test -f out/model.pt && echo --resume)",
        checkpoints="out",
        verdict="FAIL",
        reason="--resume loads the weights alone: steps are counted from 0, the optimizer is new",
        broken=Edit(pattern=r" \$\(test.*\)$", what="without --resume"),
    ),
    Sample(
        name="chainer",
        repository="chainer/chainer",
        commit="a8e15cbe55a90854a3918b8b5a976abbbff9ec94",
        folder="examples/mnist",
        script="train_mnist.py",
        framework="Chainer",
        packages=CHAINER,
        data="chainer_mnist",
        command="python train_mnist.py --epoch 8 --frequency 1 --unit 32 --out checkpoints --autoload",
        variables={"CHAINER_DATASET_ROOT": "datasets"},
        reason="--autoload takes back the whole trainer; nothing is seeded, so its metrics show it, no bits",
        broken=Edit(pattern=" --autoload", what="without --autoload"),
    ),
)
