"""The samples, each with its source, its command, the change that breaks its resume, and the right verdicts.

Each verdict was decided before the rehearsal, by reading the script. PASS is right for a script that loads its
checkpoint, goes on, and ends with the bits of a run that was left alone. FAIL is right for one that goes on without
something that training depends on, and ends with another model. FAIL is right for one that loads nothing of its
checkpoints, also where its result is the same bits.
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
            options that follow it.
    """

    name: str
    requirements: tuple[str, ...]

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
BOOSTERS = Packages(
    name="boosters",
    requirements=(
        "xgboost-cpu==3.2.0",
        "lightgbm==4.7.0",
        "catboost==1.2.10",
        "scikit-learn==1.9.1",
        "numpy==2.4.6",
        "pandas==3.1.1",
    ),
)
TENSORFLOW = Packages(
    name="tensorflow",
    requirements=("tensorflow-cpu==2.21.0", "tf_keras==2.21.0", "numpy<2.5"),
)
TRANSFORMERS_4 = Packages(
    name="transformers4",
    requirements=(
        "torch==2.13.0",
        "transformers==4.44.2",
        "datasets==2.19.2",
        "accelerate==0.34.2",
        "numpy==1.26.4",
        "pandas==2.2.3",
        "pyarrow==17.0.0",
        "fsspec==2024.3.1",
        "scikit-learn==1.5.2",
    ),
)
RL_ZOO = Packages(
    name="rl-zoo",
    requirements=(
        "torch==2.13.0",
        "stable-baselines3==2.9.2",
        "sb3-contrib",
        "gymnasium==1.2.3",
        "huggingface_sb3",
        "optuna==4.6.0",
        "pytablewriter~=1.2",
        "shimmy~=2.0",
        "rich",
        "tqdm",
        "pyyaml",
        "tensorboard==2.21.0",
    ),
)
JAX = Packages(
    name="jax",
    requirements=(
        "jax==0.4.19",
        "jaxlib==0.4.19",
        "flax==0.6.11",
        "optax==0.1.7",
        "chex==0.1.81",
        "orbax-checkpoint==0.2.7",
        "numpy==1.26.4",
        "scipy==1.11.4",
        "tensorflow-cpu==2.15.1",
        "tyro==0.8.14",
        "wandb==0.17.9",
        "setuptools<80",
    ),
)
SPEECHBRAIN = Packages(
    name="speechbrain",
    requirements=("torch==2.11.0", "torchaudio==2.11.0", "speechbrain==1.1.2", "datasets==4.4.1", "numpy==2.4.6"),
)
TIANSHOU = Packages(
    name="tianshou",
    requirements=(
        "torch==2.13.0",
        "gymnasium==1.2.3",
        "deepdiff>=7.0.1,<8",
        "h5py",
        "matplotlib",
        "numba",
        "numpy<2.4",
        "overrides>=7.4,<8",
        "pandas<3",
        "pettingzoo==1.25.0",
        "sensai-utils",
        "tensorboard==2.21.0",
        "tqdm",
        "pytest",
    ),
)
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
        reason="seeds, goes on, and the random numbers that draw its batches are not in ckpt.pt: another model",
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
        " python mnist_save_resume_engine.py --epochs 5 --log_dir out --deterministic ${last:+--resume_from $last}",
        checkpoints="out",
        variables={"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"},
        reason="a deterministic engine: its data and random numbers follow from the epoch, and all its objects are"
        " saved",
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
    Sample(
        name="xgboost",
        repository="shiiwuz/interaction-index-project",
        commit="431cd250f8e5969c27fe72266c6f7dae2fb9b1ab",
        folder="skills/interaction-index-predictor/scripts",
        script="train_xgb_fe.py",
        framework="XGBoost",
        packages=BOOSTERS,
        data="messages",
        command="python train_xgb_fe.py --data messages.jsonl --cache cache.npz --base-url http://127.0.0.1:9"
        " --emb-model none --n-estimators 200 --ckpt-every 20 --log-every 10 --early-stopping-rounds 1000"
        " --ckpt-dir checkpoints --out-model outputs/model.json --resume",
        variables={"EMBEDDINGS_API_KEY": "none"},
        verdict="FAIL",
        reason="goes on with the rounds that are left; the random numbers of subsample=0.8 begin anew: another model",
        broken=Edit(pattern=" --resume$", what="without --resume"),
    ),
    Sample(
        name="lightning-template",
        repository="ashleve/lightning-hydra-template",
        commit="bddbc24b82ab6ccfa6243e815a49dc5bfe8d4144",
        script="src/train.py",
        framework="Lightning, Hydra",
        packages=TORCH,
        data="template_mnist",
        command="python src/train.py seed=1 trainer=cpu trainer.max_epochs=12 +trainer.enable_progress_bar=false"
        " callbacks.model_checkpoint.dirpath=$PWD/checkpoints callbacks.rich_progress_bar=null test=false"
        " data.train_val_test_split=[3500,500,1000] extras.print_config=false"
        " $(test -f checkpoints/last.ckpt && echo ckpt_path=checkpoints/last.ckpt)",
        verdict="FAIL",
        reason="torch 2.13 refuses the classes in its own last.ckpt, so it fails at each resume; loaded, it would end"
        " with another model, since the order of the data is not in it",
        broken=Edit(pattern=r" \$\(test.*\)$", what="without ckpt_path"),
    ),
    Sample(
        name="diffusers",
        repository="huggingface/diffusers",
        commit="58eb52c0803ea9af3abec60841c2a093bdf1f951",
        folder="examples/unconditional_image_generation",
        script="train_unconditional.py",
        framework="diffusers, accelerate",
        packages=TORCH,
        data="diffusion",
        command="python train_unconditional.py --train_data_dir pictures --model_config_name_or_path unet"
        " --resolution 16"
        " --train_batch_size 8 --num_epochs 10 --checkpointing_steps 8 --save_images_epochs 100 --save_model_epochs 10"
        " --dataloader_num_workers 0 --output_dir checkpoints --resume_from_checkpoint latest",
        verdict="PASS or NOT JUDGED",
        reason="nothing is seeded, so two runs left alone differ, and the loss of a diffusion step is too noisy to"
        " show it",
        broken=Edit(pattern=" --resume_from_checkpoint latest", what="without --resume_from_checkpoint"),
    ),
    Sample(
        name="keras-mnist",
        repository="aws-samples/amazon-sagemaker-managed-spot-training",
        commit="949d4aad01e59e857741f93301bf16bc7b2f68ec",
        folder="tensorflow_2_managed_spot_training_checkpointing",
        paths=("mnist.py",),
        script="mnist.py",
        framework="Keras 2, TensorFlow",
        packages=TENSORFLOW,
        data="keras_mnist",
        command="python mnist.py --train digits --epochs 6 --checkpoint-path checkpoints --sm-model-dir model",
        variables={"TF_USE_LEGACY_KERAS": "1", "SM_HOSTS": '["algo-1"]'},
        verdict="PASS or NOT JUDGED",
        reason="goes on after the newest .h5 with its optimizer; nothing is seeded, so its metrics show it, no bits",
        broken=Edit(
            file="mnist.py",
            pattern=r"if not os\.listdir\(args\.checkpoint_path\):",
            replacement="if True:",
            what="never loads a model",
        ),
    ),
    Sample(
        name="hf-notebooks",
        repository="huggingface/notebooks",
        commit="5068b1142e8ed1e691c8b1e9f98e4473ebe55790",
        folder="sagemaker/05_spot_instances/scripts",
        script="train.py",
        framework="Hugging Face Trainer",
        packages=TRANSFORMERS_4,
        data="tiny_bert",
        command="mkdir -p output model && python train.py --epochs 6 --fp16 '' --model_id tiny-bert --output_dir"
        " checkpoints",
        variables={
            "SM_OUTPUT_DATA_DIR": "output",
            "SM_MODEL_DIR": "model",
            "SM_NUM_GPUS": "0",
            "SM_CHANNEL_TRAIN": "text/train",
            "SM_CHANNEL_TEST": "text/test",
            "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",
        },
        reason="the Trainer seeds, and keeps its random numbers, the optimizer, the schedule and the place in the data",
        broken=Edit(
            file="train.py",
            pattern=r"resume_from_checkpoint=last_checkpoint",
            what="finds the checkpoint and does not give it to the Trainer",
        ),
    ),
    Sample(
        name="llama2.c",
        repository="karpathy/llama2.c",
        commit="350e04fe35433e6d2941dce5a1f53308f87058eb",
        script="train.py",
        framework="torch",
        packages=TORCH,
        data="story_tokens",
        command="python train.py --device=cpu --dtype=float32 --compile=False --vocab_source=custom --vocab_size=64"
        " --dim=32 --n_layers=2 --n_heads=2 --n_kv_heads=2 --max_seq_len=32 --batch_size=4 --max_iters=300"
        " --warmup_iters=20 --gradient_accumulation_steps=1 --eval_interval=40 --eval_iters=4 --log_interval=10"
        " --always_save_checkpoint=True --init_from=$(test -f out/ckpt.pt && echo resume || echo scratch)",
        checkpoints="out",
        verdict="FAIL",
        reason="goes on, and its reader of the data begins anew with its seed: other data, another model",
        broken=Edit(pattern=r"\$\(test.*\)$", replacement="scratch", what="init_from is always scratch"),
    ),
    Sample(
        name="run-clm",
        repository="aws/amazon-sagemaker-examples",
        commit="2d519b52c3a2c2361f2b87f0d3de46fd6c0232a5",
        folder=" archived/pytorch_multiple_gpu_single_node/scripts",
        script="run_clm.py",
        framework="Hugging Face Trainer",
        packages=TRANSFORMERS_4,
        data="tiny_gpt",
        command="python run_clm.py --config_name tiny-gpt --tokenizer_name tiny-gpt --train_file train.txt"
        " --validation_file validation.txt --do_train --block_size 32 --num_train_epochs 4"
        " --per_device_train_batch_size 8 --save_steps 20 --logging_steps 10 --seed 1 --report_to none"
        " --save_total_limit 2",
        variables={"SM_MODEL_DIR": "checkpoints", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1", "HF_HOME": "cache"},
        reason="resumes from the newest checkpoint in the middle of an epoch, with its random numbers and its data"
        " skipped",
        broken=Edit(
            file="run_clm.py",
            pattern=r"checkpoint = last_checkpoint",
            replacement="checkpoint = None",
            what="finds the checkpoint and does not give it to the Trainer",
        ),
    ),
    Sample(
        name="timm",
        repository="huggingface/pytorch-image-models",
        commit="aa4b5850c1543fa488abf260f18390eda46cf85d",
        paths=("train.py", "timm"),
        script="train.py",
        framework="timm",
        packages=TORCH,
        data="small_imagenet",
        command="python train.py images --model test_resnet --num-classes 4 --img-size 64 -b 16 --epochs 6 --device"
        " cpu -j 1"
        " --no-prefetcher --output out --experiment run --seed 42 --warmup-epochs 0 --lr 0.01"
        " $(test -f out/run/last.pth.tar && echo --resume out/run/last.pth.tar)",
        checkpoints="out",
        verdict="FAIL",
        reason="goes on, and the random numbers of its augmentation and order are not in last.pth.tar: another model",
        broken=Edit(pattern=r" \$\(test.*\)$", what="without --resume"),
    ),
    Sample(
        name="rl-zoo",
        repository="DLR-RM/rl-baselines3-zoo",
        commit="22e3ff2450fd92033f7f032915e1f64894a09584",
        paths=("train.py", "rl_zoo3", "hyperparams"),
        script="train.py",
        framework="Stable-Baselines3",
        packages=RL_ZOO,
        command="last=$(find out -name 'rl_model_*_steps.zip' | sort -V | tail -1); python train.py --algo ppo"
        " --env CartPole-v1 -n 8000 --save-freq 1500 --eval-freq -1 -f out --seed 1 --num-threads 1 --device cpu"
        " ${last:+-i $last}",
        checkpoints="out",
        verdict="FAIL",
        reason="-i loads the agent and trains as many steps once more",
        broken=Edit(pattern=r" \$\{last:.*\}$", what="without -i"),
    ),
    Sample(
        name="kubeflow-elastic",
        repository="kubeflow/training-operator",
        commit="25b8a5b57b3d7a0974c2ccd9ffbd03bca85698c0",
        folder="examples/pytorch/elastic/imagenet",
        script="imagenet.py",
        framework="torch DDP, two processes",
        packages=TORCH,
        data="elastic_imagenet",
        command="python -m torch.distributed.run --standalone --nproc-per-node 2 --no-python sh rank.sh",
        verdict="PASS or NOT JUDGED",
        reason="both processes go on after the last epoch; nothing is seeded, so bits show nothing",
        broken=Edit(
            file="imagenet.py",
            pattern=r"os\.path\.isfile\(checkpoint_file\)",
            replacement="False",
            what="never loads its checkpoint",
        ),
    ),
    Sample(
        name="dezero",
        repository="oreilly-japan/deep-learning-from-scratch-3",
        commit="b5f3cf12a9e4ed84fc97b57bf41a25610d69c9e5",
        paths=("steps/step53.py", "dezero"),
        script="steps/step53.py",
        framework="DeZero on NumPy",
        packages=CHAINER,
        data="dezero_mnist",
        command="cd checkpoints && HOME=.. python ../steps/step53.py",
        verdict="FAIL",
        reason="loads weights where there are some, and saves them when its training is over: it begins anew",
        broken=Edit(
            file="steps/step53.py",
            pattern=r"os\.path\.exists\('my_mlp\.npz'\)",
            replacement="False",
            what="never loads its weights",
        ),
    ),
    Sample(
        name="gpt-jax",
        repository="jenkspt/gpt-jax",
        commit="f22a46e81e72fd44c8115f8b63dcfa53eb0a6d14",
        script="train.py",
        framework="JAX, Flax, Optax",
        packages=JAX,
        data="token_records",
        command="python train.py --out-dir $PWD/out --train-pattern 'data/train_??.tfrecord' --val-pattern"
        " 'data/val_??.tfrecord' --shuffle-buffer-size 16 --eval-interval 10 --eval-steps 2 --batch-size 4"
        " --train-steps 121 --wandb.mode disabled --model.block-size 32 --model.vocab-size 64 --model.num-layers 1"
        " --model.num-heads 2 --model.num-embeds 32",
        checkpoints="out",
        variables={"GPT_CONFIG": "none", "FLAX_USE_ORBAX_CHECKPOINTING": "0"},
        reason="the state of its data is in a checkpoint of tf.data, its dropout follows from the step",
        broken=Edit(
            file="train.py",
            pattern=r"^    dataset_manager\.restore_or_initialize\(\)\n",
            what="goes on with the weights, and its data begin anew",
        ),
    ),
    Sample(
        name="speechbrain-lm",
        repository="speechbrain/speechbrain",
        commit="9c826ef3937bac885c8a6ca86c6889a30f256fb5",
        folder="templates/speech_recognition/LM",
        script="train.py",
        framework="SpeechBrain",
        packages=SPEECHBRAIN,
        data="language_text",
        command="python train.py RNNLM.yaml --tokenizer_file tokenizer.model --number_of_epochs 6 --emb_dim 16"
        " --rnn_size 32"
        " --layers 1 --batch_size 20 --output_folder out --device cpu",
        checkpoints="out",
        variables={"HF_HOME": "cache"},
        reason="its checkpointer takes back model, optimizer, schedule and epoch, and the order follows from the epoch",
        broken=Edit(
            file="RNNLM.yaml",
            pattern=r"^        counter: .*\n",
            what="the count of epochs is not in the checkpoint",
        ),
    ),
    Sample(
        name="tianshou",
        repository="thu-ml/tianshou",
        commit="f2402056b03acafeedf2518a5088db55add004ab",
        paths=("test", "tianshou"),
        script="test/discrete/test_c51.py",
        framework="Tianshou",
        packages=TIANSHOU,
        command="python -c 'from test.discrete.test_c51 import *; test_c51(get_args(), enable_assertions=False)'"
        " --resume"
        " --epoch 6 --epoch_num_steps 400 --num_test_envs 4 --hidden_sizes 32 --logdir out --reward_threshold 1000"
        " --save_interval 1 --device cpu",
        checkpoints="out",
        verdict="FAIL",
        reason="the agent and its memory come back; its environments and random numbers begin anew: another agent",
        broken=Edit(pattern=" --resume", what="without --resume"),
    ),
    Sample(
        name="poutyne",
        repository="GRAAL-Research/poutyne",
        commit="faa19522242e38475ac71b60c7e968bd4476dc76",
        folder="examples/medium_post",
        script="poutyne_experiment.py",
        framework="Poutyne",
        packages=TORCH,
        data="whole_mnist",
        command="python poutyne_experiment.py",
        checkpoints="simple_model",
        verdict="PASS or NOT JUDGED",
        reason="an Experiment goes on by itself after its last epoch; nothing is seeded, so bits show nothing",
        broken=Edit(
            file="poutyne_experiment.py",
            pattern=r"'\./simple_model',",
            replacement="'./simple_model/' + __import__('uuid').uuid4().hex,",
            what="each start logs into a folder of its own",
        ),
    ),
)
