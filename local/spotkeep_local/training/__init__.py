"""SageMaker's training API inside the local AWS: jobs are real processes with a real `/opt/ml`.

A request comes in at `service`, is read by `aws_service`, checked by `request_rules`, becomes a `TrainingJob` (`job`),
whose life one `runner` thread leads: `channels` bring its data, `host` runs its process, `checkpoint_sync`
copies its checkpoints, `job_logs` ships what it prints, `output` packs what it leaves, `state_change_events`
tells the world, `journal` remembers it all across a crash of the server.
"""
