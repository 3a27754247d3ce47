"""SageMaker's training API inside the local AWS, where jobs are real processes with a real `/opt/ml`.

A request comes in at `service`, is checked by `request_rules`, and becomes a `TrainingJob` (`job`). One `runner` thread
takes the job from status to status. It also brings the data and packs the results. `job_host` runs the process in the
layout of `opt_ml`, `checkpoint_sync` copies its checkpoints, and `job_output` reads its printed lines. Each new status
is an event. The jobs are saved when the server stops. ministack has no SageMaker.
"""
