import json

from spotkeep_local.training.job import TrainingJob
from spotkeep_local.training.journal import Journal


def job(name: str, created_at: float = 0.0) -> TrainingJob:
    return TrainingJob(name=name, arn=name, request={}, created_at=created_at, updated_at=created_at)


def test_jobs_come_back_oldest_first(tmp_path):
    for name, created_at in (("young", 2.0), ("old", 1.0)):
        Journal(tmp_path / "jobs").save(job(name, created_at))
    assert [found.name for found in Journal(tmp_path / "jobs").load()] == ["old", "young"]


def test_the_last_save_counts(tmp_path):
    journal = Journal(tmp_path)
    journal.save(job("job", 1.0))
    journal.save(job("job", 2.0))
    assert journal.load() == [job("job", 2.0)]


def test_a_forgotten_job_is_gone(tmp_path):
    journal = Journal(tmp_path)
    journal.save(job("job"))
    journal.forget("job")
    journal.forget("job")
    assert journal.load() == []


def test_one_that_cannot_be_read_does_not_hide_the_others(tmp_path, caplog):
    journal = Journal(tmp_path)
    journal.save(job("good"))
    (tmp_path / "torn.json").write_text('{"name": ')
    (tmp_path / "other.json").write_text(json.dumps({"name": "other"}))
    (tmp_path / "half.draft").write_text("{")
    assert [found.name for found in journal.load()] == ["good"]
    assert "torn.json" in caplog.text
