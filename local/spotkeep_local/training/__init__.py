"""SageMaker's training API inside the local AWS, where jobs are real processes with a real `/opt/ml`.

A request comes in at `service`, is checked by `request_rules`, and becomes a `TrainingJob` (`job`). One `runner` thread
takes the job from status to status. `channels` brings its data and `job_host` runs its process. `checkpoint_sync`
copies its checkpoints, `job_logs` ships its printed lines, and `output` packs its results. Each new status is an event.
The jobs are saved when the server stops. ministack has no SageMaker.
"""
