"""What an interruption cut off among a script's own checkpoints is put aside before the script starts again."""

from __future__ import annotations

import json
import re
import shutil
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.runner.script_checkpoints import files as files_judged
from spotkeep.runner.script_checkpoints.folder import read_folder
from spotkeep.runner.script_checkpoints.putting_aside import cut_off_in, put_aside_cut_off

TABLE = b"entries" + struct.pack("<Q", 0xDB4775248B80FB57)
EPOCHS = json.dumps({"epoch": 3, "batch": 0})


def weights(epoch=0):
    """Make an HDF5 file of 2,048 bytes."""
    head = b"\x89HDF\r\n\x1a\n\x02\x08\x08\x00" + struct.pack("<4Q", 0, 2**64 - 1, 2048, 96)
    return (head.ljust(96, b"\0") + b"OHDR" + bytes([epoch])).ljust(2048, b"\7")


HALF = weights()[:1000]


def trainers(step):
    """Give what the Trainer of Hugging Face writes."""
    names = ("model.pt", "optimizer.pt", "scheduler.pt", "rng_state.pth")
    files = {"trainer_state.json": "{}", "config.json": "{}", **dict.fromkeys(names, b"PK\5\6" + bytes(18))}
    return {f"checkpoint-{step}/{name}": content for name, content in files.items()}


@pytest.fixture
def checkpoints(tmp_path):
    """Write these files into the checkpoint directory, and give the directory."""

    def write(files):
        for name, content in files.items():
            path = tmp_path / "checkpoints" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path / "checkpoints"

    return write


def put_aside(folder):
    """Put aside, and give what stays and what does not."""
    aside = folder.parent / "put-aside"
    put_aside_cut_off(folder, aside)
    return files(folder), files(aside)


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_checkpoints_of_the_library_stay_half_or_whole_also_those_of_one_training_of_several(checkpoints):
    ours = {"step-3/data-00000.bin": "", "fold-2/step-3/data-00000.bin": "", "fold-2/step-4/data-00000.bin": HALF}
    folder = checkpoints({**ours, "fold-2/interruptions.json": "{", "fold-2/model.h5": HALF})
    assert put_aside(folder) == ({*ours, "fold-2/interruptions.json"}, {"fold-2/model.h5"})


def test_the_newest_whole_file_is_the_newest_there_is(checkpoints, job_events):
    numbered = {f"model-{epoch:03d}.h5": weights(epoch) for epoch in (9, 10)}
    folder = checkpoints({**numbered, "model-011.h5": HALF, "notes.txt": "", "log.csv": "epoch,loss\n"})
    assert put_aside(folder) == ({*numbered, "notes.txt", "log.csv"}, {"model-011.h5"})
    assert (folder.parent / "put-aside" / "model-011.h5").read_bytes() == HALF
    [event] = job_events()
    assert {**event, "time": 0} == {
        "event": "put-aside", "time": 0, "what": "model-011.h5", "problem": "it has 1,000 of 2,048 bytes",
    }  # fmt: skip


def test_the_archive_that_torch_writes_is_judged_under_each_of_its_usual_names(checkpoints):
    names = {"model.pt", "model.pth", "checkpoint.pth.tar", "last.ckpt"}
    folder = checkpoints({**dict.fromkeys(names, b"PK\3\4" + bytes(500)), "real.tar": b"model.pt" + bytes(500)})
    assert put_aside(folder) == ({"real.tar"}, names)


def test_what_is_whole_or_unknown_or_the_librarys_stays_as_it_is(checkpoints, job_events):
    kept = {
        "model.h5": weights(), "deep/er/model-1.keras": b"PK\5\6" + bytes(18), "pickled.pt": b"\x80\x02half",
        "step-12/data-00000.h5": HALF, ".hidden/model.h5": HALF, "vectors.index": b"of another library",
        "backup/latest.weights.h5": weights(), "backup/training_metadata.json": EPOCHS,
        "tf/ckpt-1.index": TABLE, "tf/ckpt-1.data-00000-of-00001": b"shard",
        "tf/checkpoint": 'model_checkpoint_path: "ckpt-1"\n',
    }  # fmt: skip
    folder = checkpoints(kept)
    assert put_aside(folder) == (set(kept), set())
    assert all((folder / name).read_bytes() in (content, str(content).encode()) for name, content in kept.items())
    assert job_events() == []


def test_the_same_file_may_be_cut_off_again(checkpoints):
    for half in (HALF, HALF[:10]):
        folder = checkpoints({"model.h5": half, "checkpoint-5/optimizer.pt": b"PK\3\4"})
        assert put_aside(folder) == (set(), {"model.h5", "checkpoint-5/optimizer.pt"})
        assert (folder.parent / "put-aside" / "model.h5").read_bytes() == half


@pytest.mark.parametrize(
    "pair",
    [
        {"latest.weights.h5": HALF, "training_metadata.json": EPOCHS},
        {"latest.weights.h5": weights(), "training_metadata.json": '{"epo'},
        {"latest.weights.h5": weights(), "training_metadata.json": ""},
        {"training_metadata.json": EPOCHS},  # Keras would go on in epoch 3 with the weights of a new model
        {"latest.weights.h5": HALF},
    ],
)
def test_weights_and_epoch_of_a_keras_backup_go_together_and_the_second_pair_takes_their_place(checkpoints, pair):
    first = {f"alone/{name}": content for name, content in pair.items()}
    doubled = {f"doubled/{name}": content for name, content in pair.items()}
    second = {"doubled/latest.weights.h5.bkp": weights(2), "doubled/training_metadata.json.bkp": '{"epoch": 2}'}
    folder = checkpoints({**first, **doubled, **second})
    stays, aside = put_aside(folder)
    assert stays == {"doubled/latest.weights.h5", "doubled/training_metadata.json"}
    assert aside == {*first, *doubled}
    assert (folder / "doubled/latest.weights.h5").read_bytes() == weights(2)
    assert json.loads((folder / "doubled/training_metadata.json").read_text()) == {"epoch": 2}


@pytest.mark.parametrize("second", [HALF, None])
def test_a_second_pair_that_is_not_whole_does_not_take_its_place(checkpoints, second):
    pair = {"latest.weights.h5": HALF, "training_metadata.json": EPOCHS, "training_metadata.json.bkp": EPOCHS}
    folder = checkpoints({**pair, **({} if second is None else {"latest.weights.h5.bkp": second})})
    assert not put_aside(folder)[0] & {"latest.weights.h5", "training_metadata.json"}


@pytest.mark.parametrize(
    ("newest", "problem"),
    [
        ({"ckpt-3.index": TABLE}, "it has 0 of 1 shards"),
        ({"ckpt-3.index": TABLE, "ckpt-3.data-00001-of-00002": b"s"}, "it has 1 of 2 shards"),
        ({"ckpt-3.data-00000-of-00001": b"s"}, "ckpt-3.index is missing beside it"),
        ({"ckpt-3.index": TABLE[:-1], "ckpt-3.data-00000-of-00001": b"s"}, "the end of the index is missing"),
        ({}, None),  # `checkpoint` has reached S3 before what it names
    ],
)
def test_tensorflow_finds_the_newest_checkpoint_that_has_all_its_files(checkpoints, job_events, newest, problem):
    older = {f"ckpt-{n}.{end}": TABLE for n in (1, 2) for end in ("index", "data-00000-of-00001")}
    names = "".join(f'all_model_checkpoint_paths: "ckpt-{number}"\n' for number in (1, 2, 3))
    times = "all_model_checkpoint_timestamps: 1.0\n" * 3
    folder = checkpoints({**older, **newest, "checkpoint": f'model_checkpoint_path: "ckpt-3"\n{names}{times}'})
    assert put_aside(folder) == ({*older, "checkpoint"}, set(newest))
    assert re.findall('"(.+)"', (folder / "checkpoint").read_text()) == ["ckpt-2", "ckpt-1", "ckpt-2"]
    assert [event["problem"] for event in job_events()] == ([problem] if problem else [])


def test_tensorflow_begins_anew_when_there_is_no_whole_one(checkpoints):
    assert put_aside(checkpoints({"checkpoint": 'model_checkpoint_path: "ckpt-3"\n'})) == (set(), set())


def test_a_folder_that_is_one_checkpoint_goes_as_a_whole(checkpoints):
    folders = {
        **trainers(500), "checkpoint-500/optimizer.pt": b"PK\3\4ends too early",
        "saved/003/saved_model.pb": b"graph", "saved/003/variables/variables.index": TABLE,
    }  # fmt: skip
    others = {
        **trainers(400),
        "saved/002/saved_model.pb": b"graph",
    }  # fmt: skip
    assert put_aside(checkpoints({**folders, **others})) == (set(others), set(folders))


def test_what_cannot_be_moved_is_left_to_the_script(checkpoints, capsys):
    folder = checkpoints({"model.h5": HALF})
    (folder.parent / "put-aside").write_text("a file where the directory would be")
    put_aside_cut_off(folder, folder.parent / "put-aside")
    assert files(folder) == {"model.h5"}
    assert "are left as they are" in capsys.readouterr().err


def test_a_folder_of_a_step_goes_with_the_least_of_its_parts_and_one_of_another_name_stays(checkpoints):
    broken = {"epoch-2/model.h5": HALF, "epoch-2/optimizer.h5": weights(), "epoch-2/rank_0.h5": weights()}
    kept = {
        "epoch-1/model.h5": weights(), "epoch-1/optimizer.h5": weights(),
        "fold-2/best.h5": weights(), "fold-2/notes.txt": "", "step_of_8/model-7.h5": weights(),
        "epoch-3/model-1.h5": weights(), "epoch-3/model-2.h5": weights(),
    }  # fmt: skip
    alone = {"fold-2/last.h5": HALF, "epoch-3/model-3.h5": HALF}
    assert put_aside(checkpoints({**kept, **broken, **alone})) == (set(kept), {*broken, *alone})


def test_what_each_folder_of_a_step_had_until_now_is_missed_in_the_newest(checkpoints, job_events):
    def saved(number, *names):
        return {f"epoch-{number}/{name}": weights() for name in names}

    kept = {
        **saved(1, "model.h5", "optimizer.h5", "best.h5"), **saved(2, "model.h5", "optimizer.h5", "rank-0.h5"),
        **saved(3, "model.h5", "optimizer.h5"), **{f"fold-{fold}/last.h5": weights() for fold in (1, 2, 3)},
        "fold-1/final.h5": weights(), "fold-2/final.h5": weights(), "epoch-5/notes.txt": "",
    }  # fmt: skip
    assert put_aside(checkpoints({**kept, **saved(4, "model.h5")})) == (set(kept), {"epoch-4/model.h5"})
    assert [event["problem"] for event in job_events()] == ["optimizer.h5 is missing, which those before have"]


def test_a_script_may_call_its_folders_as_the_library_does(checkpoints):
    whole = {"step-10/model.h5": weights(), "step-20/manifest.json": "{", "step-30/data-00000.bin": b"half"}
    folder = checkpoints({**whole, "step-11/model.h5": HALF})
    assert put_aside(folder) == (set(whole), {"step-11/model.h5"})


def test_sagemakers_marks_are_no_part_of_a_checkpoint(checkpoints):
    names = [*trainers(8), "model-1.h5"]
    marks = {f"{name}.sagemaker-{mark}": "" for name in names for mark in ("uploading", "uploaded")}
    folder = checkpoints({**trainers(4), **trainers(8), **marks, "model-1.h5": weights()})
    assert put_aside(folder)[1] == set()
    (folder / "checkpoint-8" / "model.pt").unlink()
    assert {name.partition("/")[0] for name in put_aside(folder)[1]} == {"checkpoint-8"}


def test_what_a_script_has_stopped_to_write_is_not_missed_and_one_before_is_not_enough(checkpoints):
    both = {f"step_{number}/{name}": weights() for number in (1, 2) for name in ("model.h5", "optimizer.h5")}
    stopped = {f"step_{number}/model.h5": weights() for number in (3, 4)}
    one = {"ckpt-1/model.h5": weights(), "ckpt-1/optimizer.h5": weights(), "ckpt-2/model.h5": weights()}
    folder = checkpoints({**both, **stopped, **one})
    assert put_aside(folder) == ({*both, *stopped, *one}, set())


def test_folders_are_compared_with_those_of_their_series_only(checkpoints):
    kept = {
        **trainers(500), "runs-1/.metadata": "of another program", "runs-2/events.out": "",
        "checkpoint_4/notes.txt": "", "7/other.txt": "", "1/saved_model.pb": b"graph",
    }  # fmt: skip
    assert put_aside(checkpoints(kept)) == (set(kept), set())


def test_keras_weights_in_several_files_go_together(checkpoints):
    def sharded(number, second):
        index = {"weight_map": {"/layers/dense/vars": [f"m{number}_00000.weights.h5", f"m{number}_00001.weights.h5"]}}
        names = {f"m{number}.weights.json": json.dumps(index), f"m{number}_00000.weights.h5": weights()}
        return {**names, **({f"m{number}_00001.weights.h5": second} if second else {})}

    whole, cut, missing = sharded(1, weights()), sharded(2, HALF), sharded(3, None)
    assert put_aside(checkpoints({**whole, **cut, **missing})) == (set(whole), {*cut, *missing})


def test_a_link_to_the_newest_leads_to_the_newest_whole_one(checkpoints):
    files = {f"lightning/epoch={number}-step={number}0.ckpt": b"PK\5\6" + bytes(18) for number in (8, 9, 10, 11)}
    folder = checkpoints(
        {**files, "lightning/epoch=10-step=100.ckpt": b"PK\3\4", "lightning/epoch=11-step=110.ckpt": b""}
    )
    (folder / "lightning" / "last.ckpt").symlink_to("epoch=11-step=110.ckpt")
    (folder / "lightning" / "elsewhere").symlink_to(folder.parent / "nowhere")
    (folder / "only").symlink_to("m-1.h5")
    (folder / "m-1.h5").write_bytes(HALF)
    put_aside(folder)
    assert (folder / "lightning" / "last.ckpt").resolve().name == "epoch=9-step=90.ckpt"
    assert (folder / "lightning" / "elsewhere").is_symlink(), "it pointed nowhere before"
    assert not (folder / "only").is_symlink()


def test_of_too_many_files_no_folder_is_judged_by_a_part_of_it(checkpoints, monkeypatch, capsys):
    folder = checkpoints({"z.h5": HALF, **trainers(4), **trainers(8)})
    (folder / "checkpoint-8" / "model.pt").unlink()
    monkeypatch.setattr("spotkeep.runner.script_checkpoints.folder._MOST_FILES", 12)
    assert put_aside(folder)[1] == {"z.h5"}
    assert "not all were checked" in capsys.readouterr().err


def test_what_cannot_be_read_is_left_and_the_rest_is_judged(checkpoints, monkeypatch, capsys):
    folder = checkpoints(
        {**trainers(4), **trainers(8), "checkpoint-8/optimizer.pt": HALF, "a/b.h5": HALF, "c.h5": HALF}
    )
    real = files_judged.problem_of

    def refuse(path):
        if path.parent.name == "checkpoint-4" or path.name == "b.h5":
            raise PermissionError(13, "no", str(path))
        return real(path)

    monkeypatch.setattr(files_judged, "problem_of", refuse)
    assert put_aside(folder)[1] == {*trainers(8), "c.h5"}
    assert capsys.readouterr().err.count("are left as they are") == 2


def test_folders_that_are_nested_without_end_are_left(checkpoints):
    folder = checkpoints({"a.h5": HALF, "/".join(["deep"] * 300) + "/b.h5": HALF})
    assert put_aside(folder)[1] == {"a.h5"}


def test_links_are_not_followed(checkpoints, tmp_path):
    folder = checkpoints({"model-1.h5": weights()})
    (tmp_path / "elsewhere.h5").write_bytes(HALF)
    (folder / "model-2.h5").symlink_to(tmp_path / "elsewhere.h5")
    assert put_aside(folder)[1] == set()


def test_the_script_of_a_job_never_finds_half_a_file(start, tmp_path):
    folder = tmp_path / "ml" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "model-9.h5").write_bytes(weights())
    (folder / "model-10.h5").write_bytes(HALF)
    job = start(["python", "train.py"], script="import os; print(os.listdir(os.environ['SPOTKEEP_CHECKPOINT_DIR']))")
    assert job.finish() == 0, job.stderr
    assert "['model-9.h5']" in job.lines
    assert [event["event"] for event in job.events] == ["start", "put-aside", "exit"]
    assert (tmp_path / "ml" / "put-aside" / "model-10.h5").exists()
    assert "model-10.h5 is not whole and was put aside" in job.stderr


NAMES = [
    "trainer_state.json", "training_args.bin", "config.json", "model.safetensors.index.json", "rng_state_1.pth",
    "random_states_0.pkl", "optimizer_1.bin", ".metadata", "__0_0.distcp", "latest", "zero_to_fp32.py",
    "_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt", ".zarray", "zarr.json", "saved_model.pb", "checkpoint",
    "training_metadata.json", "latest.weights.h5", "m.weights.json", "model-1.txt", "model-2.json",
]  # fmt: skip
KEYS = [
    "weight_map", "tree_metadata", "value_metadata", "value_type", "item_handlers", "commit_timestamp_nsecs", "shape",
    "chunks", "chunk_grid", "configuration", "chunk_shape", "dimension_separator", "chunk_key_encoding", "a",
]  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | st.text(max_size=5) | st.just("jax.Array"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6)
CONTENTS = st.binary(max_size=40) | OBJECTS.map(lambda value: json.dumps(value).encode())


@given(
    folders=st.dictionaries(
        st.sampled_from(["checkpoint-1", "checkpoint-2", "3", "3/d", "epoch_4", "s.ckpt", "5/variables"]),
        st.dictionaries(st.sampled_from(NAMES), CONTENTS, max_size=5),
        max_size=4,
    )
)
def test_whatever_a_folder_holds_it_gets_an_answer(tmp_path_factory, folders):
    root = tmp_path_factory.getbasetemp() / "any"
    shutil.rmtree(root, ignore_errors=True)
    for folder, contents in folders.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (root / folder / name).write_bytes(content)
    root.mkdir(exist_ok=True)
    for one in cut_off_in(read_folder(root), pytest.fail):
        assert all(path.exists() for path in one.paths)
        assert one.problem
