"""Checkpoints that Keras and TensorFlow write themselves, by the real libraries: whole ones stay, cut off ones do not.

The scripts know nothing of Spotkeep. They are interrupted, and their files are cut as a copy made meanwhile would be;
before they start again the files are checked, as the runner does.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
h5py = pytest.importorskip("h5py")

from spotkeep.runner.script_checkpoints.putting_aside import put_aside_cut_off  # noqa: E402

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"),
]

EPOCHS = 3


def train(folder, kind, *, dies_in=None):
    """Train as a script does that takes the newest of its files. Give the epochs that began, and the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(1)
    keras.backend.clear_session(free_memory=False)  # to look for garbage in all that is imported takes time
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile("adam" if kind != ".h5" else "sgd", keras.losses.MeanSquaredError())
    x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    begun, initial = [], 0
    if kind == "backup":
        own = keras.callbacks.BackupAndRestore(str(folder / "backup"), double_checkpoint=True)
    else:
        files = sorted(path.name for path in folder.iterdir() if path.name.endswith(kind))
        if files:
            model, initial = keras.models.load_model(folder / files[-1]), int(files[-1].split("-")[1].split(".")[0])
        if files and kind == ".h5":  # Keras 3.15 cannot go on with the optimizer that it reads from there
            model.compile("sgd", keras.losses.MeanSquaredError())
        own = keras.callbacks.ModelCheckpoint(str(folder / ("model-{epoch:03d}" + kind)))

    def begin(epoch, logs):
        begun.append(epoch)
        if epoch == dies_in:
            raise KeyboardInterrupt

    callbacks = [keras.callbacks.LambdaCallback(on_epoch_begin=begin), own]
    model.fit(x, x.sum(1), epochs=EPOCHS, initial_epoch=initial, shuffle=False, verbose=0, callbacks=callbacks)
    return begun, model.get_weights()


def check(tmp_path):
    put_aside_cut_off(tmp_path / "checkpoints", tmp_path / "put-aside")


@pytest.mark.parametrize("kind", [".h5", ".keras", "backup"])
def test_an_unchanged_script_goes_on_with_its_newest_whole_file(tmp_path, kind):
    begun, expected = train(tmp_path / "alone", kind)
    assert begun == list(range(EPOCHS))
    folder = tmp_path / "checkpoints"
    with pytest.raises(KeyboardInterrupt):
        train(folder, kind, dies_in=EPOCHS - 1)
    newest = folder / ("backup/latest.weights.h5" if kind == "backup" else f"model-002{kind}")
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    if kind != "backup":  # of that Keras reads the pair before by itself
        shutil.copytree(folder, tmp_path / "unchecked")
        with pytest.raises((OSError, ValueError)):
            train(tmp_path / "unchecked", kind)
    check(tmp_path)
    begun, weights = train(folder, kind)
    assert begun == [1, 2], "the file of one epoch is the newest whole one"
    assert all(np.array_equal(*pair) for pair in zip(weights, expected, strict=True))


def test_a_backup_without_a_second_pair_begins_anew_and_not_in_a_later_epoch_with_new_weights(tmp_path):
    folder = tmp_path / "checkpoints"
    with pytest.raises(KeyboardInterrupt):
        train(folder, "backup", dies_in=EPOCHS - 1)
    for path in (folder / "backup").glob("*.bkp"):
        path.unlink()
    (folder / "backup" / "latest.weights.h5").unlink()
    check(tmp_path)
    assert train(folder, "backup")[0] == list(range(EPOCHS))


WRITERS = """
import os, random, signal, sys, time
import h5py, numpy

arrays = {f"layer{number}": numpy.random.rand(8, 100) for number in range(200)}

def write(folder):
    with h5py.File(f"{folder}/model.h5", "w") as file:
        for name, array in arrays.items():
            file.create_group(name).create_dataset("0", data=array)
        file.attrs["written"] = True
    numpy.savez(f"{folder}/model.npz", **arrays)

def timed(folder):
    os.makedirs(folder)
    began = time.perf_counter()
    write(folder)
    return time.perf_counter() - began

takes = max(timed(f"{sys.argv[1]}/alone-{number}/checkpoints") for number in range(2))
chance = random.Random()
for number in range(int(sys.argv[2])):
    folder = f"{sys.argv[1]}/{number}/checkpoints"
    os.makedirs(folder)
    writer = os.fork()
    if not writer:
        write(folder)
        os._exit(0)
    time.sleep(chance.uniform(0, takes))
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
"""
"""Starts one writer of checkpoints after the other, and kills each at some moment of its writing."""


def test_however_a_process_is_killed_while_it_writes_what_stays_can_be_loaded(tmp_path):
    subprocess.run([sys.executable, "-c", WRITERS, str(tmp_path), "20"], check=True)
    stayed, aside = 0, 0
    for folder in tmp_path.glob("*/checkpoints"):
        check(folder.parent)
        if (folder / "model.h5").exists():
            with h5py.File(folder / "model.h5") as file:
                assert file.attrs["written"]
        if (folder / "model.npz").exists():
            with np.load(folder / "model.npz") as file:
                assert len(file.files) == 200
        stayed += len(list(folder.iterdir()))
        aside += len(list((folder.parent / "put-aside").glob("*")))
    assert stayed >= 4, "the two that were left alone, whole"
    assert aside


def test_tensorflow_finds_the_newest_whole_checkpoint(tmp_path):
    folder = tmp_path / "checkpoints"
    variable = tf.Variable(0)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(step=variable), str(folder), max_to_keep=3)
    for step in (1, 2, 3):
        variable.assign(step)
        manager.save()
    check(tmp_path)
    assert tf.train.latest_checkpoint(str(folder)).endswith("ckpt-3"), "whole ones stay"
    for lost, newest in (("ckpt-3.index", 2), ("ckpt-2.data-00000-of-00001", 1)):
        (folder / lost).unlink()
        check(tmp_path)
        restored = tf.Variable(0)
        manager = tf.train.CheckpointManager(tf.train.Checkpoint(step=restored), str(folder), max_to_keep=3)
        assert manager.restore_or_initialize().endswith(f"ckpt-{newest}")
        assert int(restored) == newest


def test_a_saved_model_without_its_variables_goes_as_a_whole(tmp_path):
    folder = tmp_path / "checkpoints"
    for epoch in (1, 2):
        module = tf.Module()
        module.value = tf.Variable(epoch)
        tf.saved_model.save(module, str(folder / f"model-{epoch}"))
    (folder / "model-2" / "variables" / "variables.index").unlink()
    check(tmp_path)
    assert [path.name for path in folder.iterdir()] == ["model-1"]
    assert int(tf.saved_model.load(str(folder / "model-1")).value) == 1
