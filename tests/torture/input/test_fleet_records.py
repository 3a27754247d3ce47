"""What a training script writes into its run's fleet record, or what lies beside it, is a record, a job, or refused."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spotkeep_fleet.errors import DocumentError
from spotkeep_fleet.instance_job import VolumeSpec, decode_job, encode_job
from spotkeep_fleet.record import (
    VOLUME,
    CurrentVolume,
    Departure,
    FleetRecord,
    Lease,
    Retired,
    StoredSnapshot,
    TrainingReport,
    VolumeMove,
    decode,
    encode,
    fleet_record_of,
)
from spotkeep_fleet.training_spec import JobSource
from tests.models.ec2 import instance_job

from .bounds import bounded, fed_by_strangers
from .mutations import ANYTHING, NUMBERS, as_json, mutated

RECORD = json.loads(
    encode(
        FleetRecord(
            run="count",
            version=3,
            lease=Lease("i-1", 2, 1e9),
            volume=CurrentVolume("vol-1", "us-east-1a", 8, damage="e2fsck"),
            move=VolumeMove(2, "us-east-1b", VOLUME, "vol-1", "snap-1", "vol-2"),
            retired=(Retired(VOLUME, "vol-0"),),
            kept=("vol-9",),
            snapshots=(StoredSnapshot("snap-1", 3.5, 1e9),),
            training=TrainingReport(step=3, noticed=(Departure("i-0", 1e9),), heartbeat_at=1e9, output_uri="s3://b/o"),
            problem="the volume is full",
        )
    )
)
ITEM = {"record": {"S": json.dumps(RECORD)}, "version": {"N": "3"}}
JOB = json.loads(
    encode_job(
        instance_job(
            ("python", "train.py"),
            VolumeSpec(size_gb=8, initialization_rate_mib_s=200),
            environment={"A": "b"},
            source=JobSource(git_url="https://example.com/x.git", git_commit="a" * 40),
            channels={"train": "s3://bucket/data"},
        )
    )
)


@fed_by_strangers(share=0.4)
@given(mutated(RECORD), NUMBERS)
def test_a_record_with_anything_in_it_is_read_and_written_again_or_refused(document: Any, number: str) -> None:
    text = as_json(document, number=number)
    with bounded(), contextlib.suppress(DocumentError):
        record = decode(text)
        assert decode(encode(record)) == record
        encode(record).encode("utf-8")


@fed_by_strangers(share=0.2)
@given(mutated(ITEM) | ANYTHING.map(lambda found: {"record": found}))
def test_an_item_of_the_run_table_is_a_record_or_refused(item: Any) -> None:
    if not isinstance(item, dict):
        return  # DynamoDB gives items.
    with bounded(), contextlib.suppress(DocumentError):
        assert fleet_record_of(item, run="count").version == 3


@fed_by_strangers(share=0.1)
@given(st.text(max_size=200) | st.integers(0, 10**5).map(lambda depth: "[" * depth) | st.just("9" * 10**5))
def test_text_that_is_no_record_and_no_job_is_refused(text: str) -> None:
    with bounded():
        for parse in (decode, decode_job):
            with contextlib.suppress(DocumentError):
                parse(text)


@fed_by_strangers(share=0.3)
@given(mutated(JOB), NUMBERS)
def test_a_job_with_anything_in_it_is_read_or_refused(document: Any, number: str) -> None:
    with bounded(), contextlib.suppress(DocumentError):
        decode_job(as_json(document, number=number))
