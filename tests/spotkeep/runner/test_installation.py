"""What a script needs is there before it starts: real pip, real virtual environments, wheels that are made here."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

TRAINS = "import sys, needed; print(needed.__version__, needed.__file__, sys.prefix)"


@pytest.fixture
def image(tmp_path):
    """The `bin` of a Python that has pip and `pluggy` 1.0: of all that is installed for ours, pip reads for seconds."""
    python = tmp_path / "image"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", python], check=True)
    (packages,) = python.glob("lib/*/site-packages")
    pip = Path(importlib.util.find_spec("pip").origin).parent
    (packages / "pip").symlink_to(pip)
    (packages / "pluggy.py").write_text("__version__ = '1.0'\n")
    (packages / "pluggy-1.0.dist-info").mkdir()
    (packages / "pluggy-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: pluggy\nVersion: 1.0\n")
    return python / "bin"


@pytest.fixture
def wheels(tmp_path, image):
    """Makes wheels where pip finds them, and nothing else."""
    folder = tmp_path / "wheels"
    folder.mkdir()

    def make(name, version, *, requires=()):
        path = folder / f"{name}-{version}-py3-none-any.whl"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += "".join(f"Requires-Dist: {each}\n" for each in requires)
        info = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr(f"{name}.py", f"__version__ = {version!r}\ndef main(): print('of the scripts')\n")
            wheel.writestr(f"{info}/METADATA", metadata)
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name}-script = {name}:main\n")
            wheel.writestr(f"{info}/RECORD", "")
        return path

    make.environment = {
        "PATH": f"{image}{os.pathsep}{os.defpath}",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "PIP_NO_CACHE_DIR": "1",
    }
    return make


@pytest.fixture
def source(tmp_path, make_tar):
    """Makes the channel with the job's source."""

    def make(**files):
        channel = tmp_path / "ml" / "input" / "data" / "source"
        channel.mkdir(parents=True, exist_ok=True)
        members = ({"name": name.replace("__", "."), "content": text.encode()} for name, text in files.items())
        make_tar(*members).replace(channel / "source.tar.gz")

    return make


def events_of(job, *names):
    return [event for event in job.events if event["event"] in names]


def test_the_script_finds_what_requirements_txt_asks_for(start, wheels, source, tmp_path):
    wheels("needed", "1.0")
    source(train__py=TRAINS, requirements__txt="needed\npluggy\n")
    job = start(["python", "train.py"], options=["--install", "auto"], **wheels.environment)
    assert job.finish() == 0, job.stderr
    version, file, prefix = job.lines[-2].split()
    environment = tmp_path / "ml" / "environment"
    assert version == "1.0"
    assert file.startswith(f"{environment}/")
    assert prefix == str(environment)
    # The image has pluggy: it is not installed again.
    assert not list(environment.rglob("pluggy*"))
    installing, installed = events_of(job, "installing", "installed")
    assert installing["what"] == installed["what"] == "requirements.txt"
    assert installed["reason"] == "by pip"

    # The volume of a run on EC2 has it when the run comes back, without pip.
    wheels("needed", "2.0")
    wheels.environment.pop("PIP_FIND_LINKS")
    again = start(["python", "train.py"], options=["--install", "auto"], **wheels.environment)
    assert again.finish() == 0, again.stderr
    assert again.lines[-2].split()[0] == "1.0"
    assert events_of(again, "installed")[0]["reason"] == "kept on this machine"


@pytest.mark.long
def test_what_cannot_be_installed_ends_the_job_with_pips_last_words(start, wheels, source):
    source(train__py="print('never')", requirements__txt="needed==7\n")
    job = start(["python", "train.py"], options=["--install", "auto"], **wheels.environment)
    assert job.finish() == 71
    assert "never" not in job.lines
    assert job.failure.startswith("pip install -r requirements.txt exited with code 1:")
    assert "No matching distribution found for needed==7" in job.failure
    assert not events_of(job, "installed")


@pytest.mark.long
def test_a_list_a_script_of_it_and_a_newer_version_than_the_images(start, wheels, image):
    wheels("needed", "1.0", requires=["pluggy==99"])
    wheels("pluggy", "99")
    wheels("colorful", "3")
    job = start(
        ["sh", "-c", "needed-script && python -c 'import pluggy; print(pluggy.__version__)'"],
        options=["--requirement", "needed>=1", "--requirement", "colorful==3"],
        **wheels.environment,
    )
    assert job.finish() == 0, job.stderr
    assert job.lines[-3:-1] == ["of the scripts", "99"]
    # That of the image is as it was.
    there = subprocess.run([image / "python", "-c", "import pluggy; print(pluggy.__version__)"], capture_output=True)
    assert there.stdout.strip() == b"1.0"


@pytest.mark.long
def test_other_requirements_are_installed_anew(start, wheels, source):
    wheels("needed", "1.0")
    source(train__py=TRAINS, requirements__txt="needed==1.0\n")
    assert start(["python", "train.py"], options=["--install", "auto"], **wheels.environment).finish() == 0
    wheels("needed", "2.0")
    source(train__py=TRAINS, requirements__txt="needed==2.0\n")
    job = start(["python", "train.py"], options=["--install", "auto"], **wheels.environment)
    assert job.finish() == 0, job.stderr
    assert job.lines[-2].split()[0] == "2.0"
    assert events_of(job, "installed")[0]["reason"] == "by pip"


@pytest.mark.long
def test_an_installation_that_was_cut_short_begins_anew(start, wheels, source, tmp_path):
    wheels("needed", "1.0")
    source(train__py=TRAINS, requirements__txt="needed\n")
    environment = tmp_path / "ml" / "environment"
    (environment / "lib").mkdir(parents=True)
    (environment / "lib" / "half.py").write_text("")
    job = start(["python", "train.py"], options=["--install", "auto"], **wheels.environment)
    assert job.finish() == 0, job.stderr
    assert not (environment / "lib" / "half.py").exists()


@pytest.mark.long
@pytest.mark.parametrize("right", [True, False])
def test_hashes_are_compared_where_the_file_has_them(start, wheels, source, right):
    digest = hashlib.sha256(wheels("needed", "1.0").read_bytes()).hexdigest() if right else "0" * 64
    if not right:
        wheels("needed", "1.0")
    source(train__py=TRAINS, requirements__txt=f"needed==1.0 --hash=sha256:{digest}\n")
    job = start(["python", "train.py"], options=["--install", "auto"], **wheels.environment)
    assert job.finish() == (0 if right else 71), job.stderr
    assert right or "DO NOT MATCH THE HASHES" in job.stderr


@pytest.mark.long
def test_an_image_without_pip_is_refused_with_what_to_do(start, source, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    source(train__py="", requirements__txt="needed\n")
    job = start(
        ["python", "train.py"],
        options=["--install", "auto"],
        interpreter=str(tmp_path / "bare" / "bin" / "python"),
        PATH=f"{tmp_path}/bare/bin:/usr/bin:/bin",
    )
    assert job.finish() == 71
    assert "has no pip to install them" in job.failure
    assert "install: none" in job.failure


@pytest.mark.long
def test_a_notice_during_the_installation_leaves_as_one_during_the_training(start, source, tmp_path):
    """A build that takes its time: pip is interrupted, and nothing half is taken for whole."""
    slow = """
        import pathlib, time
        pathlib.Path("building").touch()
        time.sleep(60)
    """
    source(
        train__py="print('never')",
        requirements__txt="./slow\n",
        **{"slow/setup__py": "\n".join(line.strip() for line in slow.splitlines())},
    )
    job = start(
        ["python", "train.py"],
        options=["--install", "auto"],
        PIP_NO_INDEX="1",
        PIP_NO_BUILD_ISOLATION="0",
        SPOTKEEP_NOTICE_SECONDS="3",
    )
    job.wait_for("installing")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 75, job.stderr
    assert job.failure is None
    assert not (tmp_path / "ml" / "environment" / "spotkeep-environment.json").exists()


def test_a_machine_is_set_up_once(start, source):
    source(train__py="print('trains')", setup__py="print('sets up')")
    options = ["--setup", "python setup.py"]
    first, second = start(["python", "train.py"], options=options), None
    assert first.finish() == 0, first.stderr
    second = start(["python", "train.py"], options=options)
    assert second.finish() == 0, second.stderr
    assert [job.lines.count("sets up") for job in (first, second)] == [1, 0]
    assert [job.lines.count("trains") for job in (first, second)] == [1, 1]


def test_a_setup_that_fails_ends_the_job_with_its_last_words(start, source):
    source(train__py="print('never')", setup__py="raise SystemExit('no tokenizer')")
    job = start(["python", "train.py"], options=["--setup", "python setup.py"])
    assert job.finish() == 71
    assert job.failure == "setup: python setup.py exited with code 1:\nno tokenizer"
    assert "never" not in job.lines


@pytest.mark.long
def test_the_next_job_on_a_warm_host_finds_what_the_last_one_installed(start, wheels, source, tmp_path):
    wheels("needed", "1.0")
    source(train__py=TRAINS, requirements__txt="needed\n")
    warm = ["--install", "auto", "--warm-pool"]
    index = {"PIP_EXTRA_INDEX_URL": "https://ada:password@index.example/simple"}

    def the_next_job(options, **environment):
        """Only what is in the cache directory stays on a host."""
        shutil.rmtree(tmp_path / "ml" / "environment", ignore_errors=True)
        job = start(["python", "train.py"], options=options, **{**wheels.environment, **index, **environment})
        assert job.finish() == 0, job.stderr
        [installed] = events_of(job, "installed")
        kept = [event["what"] for event in events_of(job, "environment-cached", "environment-not-cached")]
        return job.lines[-2].split()[0], installed["reason"], kept

    assert the_next_job(["--install", "auto"]) == ("1.0", "by pip", [])  # its host is given back
    assert the_next_job(warm) == ("1.0", "by pip", ["the warm pool's cache"])
    wheels("needed", "2.0")
    # Another launch, with another password, whether its own host is kept or not.
    index = {"PIP_EXTRA_INDEX_URL": "https://bob:other@index.example/simple"}
    for options in (["--install", "auto"], warm):
        assert the_next_job(options, SPOTKEEP_LAUNCH="another") == ("1.0", "from the warm pool's cache", [])
    # From another index come other packages.
    assert the_next_job(["--install", "auto"], PIP_EXTRA_INDEX_URL="https://index.test/")[:2] == ("2.0", "by pip")
    # What is damaged costs an installation, and is replaced.
    [archive] = (tmp_path / "ml" / "sagemaker" / "warmpoolcache").rglob("*.tar")
    archive.write_bytes(archive.read_bytes()[:-1])
    assert the_next_job(warm) == ("2.0", "by pip", ["the warm pool's cache", "the warm pool's cache"])
    assert the_next_job(warm) == ("2.0", "from the warm pool's cache", [])


@pytest.mark.long
def test_what_may_have_changed_without_a_pin_is_not_taken_from_a_warm_host(start, wheels, source):
    wheels("needed", "1.0")
    source(train__py=TRAINS, requirements__txt="-r more.txt\n", more__txt="needed\n")
    job = start(["python", "train.py"], options=["--install", "auto", "--warm-pool"], **wheels.environment)
    assert job.finish() == 0, job.stderr
    assert not events_of(job, "environment-cached")


@pytest.mark.long
def test_a_comeback_takes_the_environment_from_s3_and_does_without_one_it_cannot_have(
    start, wheels, source, local_aws, bucket, tmp_path
):
    wheels("needed", "1.0")
    source(train__py=TRAINS, requirements__txt="needed\n")
    place = f"s3://{bucket.name}/runs/a-1/output/environments/"
    options = ["--install", "auto", "--environments", place]
    of_the_job = {**local_aws.environment(), "SPOTKEEP_LAUNCH": "feed"}

    def on_a_new_machine(**environment):
        shutil.rmtree(tmp_path / "ml" / "environment", ignore_errors=True)
        job = start(["python", "train.py"], options=options, **{**of_the_job, **environment})
        assert job.finish() == 0, job.stderr
        # The last line is the event `exit`.
        return job.lines[-2].split()[0], [event["event"] for event in job.events][2:-1], job

    _, first, _ = on_a_new_machine(**wheels.environment)
    assert first == ["installed", "environment-cached"]
    version, names, back = on_a_new_machine(PATH=wheels.environment["PATH"], PIP_NO_INDEX="1")
    assert (version, names) == ("1.0", ["installed"])
    assert events_of(back, "installed")[0]["reason"] == "from the cache"
    # Of another launch nothing is taken: pip installs.
    _, names, other = on_a_new_machine(**wheels.environment, SPOTKEEP_LAUNCH="another")
    assert names == ["environment-not-cached", "installed", "environment-cached"]
    assert "was not written by this launch" in events_of(other, "environment-not-cached")[0]["problem"]
    # A place that cannot be written costs an installation, and ends nothing.
    options[-1] = "s3://no-such-bucket/runs/a-1/output/environments/"
    _, names, _ = on_a_new_machine(**wheels.environment)
    assert names == ["installed", "environment-not-cached"]
