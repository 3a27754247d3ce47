"""SageMaker's training API inside the local AWS: jobs are real processes with a real `/opt/ml`.

A request comes in at `service`, is checked by `request_rules`, and becomes a `TrainingJob` (`job`), which one `runner`
thread takes from status to status: `channels` bring its data, `job_host` runs its process, `checkpoint_sync` copies its
checkpoints, `job_logs` ships what it prints, `output` packs what it leaves. Each new status is an event. The jobs are
saved when the server stops. ministack has no SageMaker.
"""
