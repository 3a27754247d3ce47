"""Rehearses a job on a local AWS: deploy, launch, take its capacity away, and judge what came back.

The rehearsal uses what a user would use: the real CDK CLI deploys the real app, the launcher Lambda is invoked, the
training script is a real process. Nothing here knows how a script trains; it only looks at what happened
(:mod:`.evidence`) and decides in one pure function (:mod:`.verdict`) whether the run kept what it should have kept.
"""
