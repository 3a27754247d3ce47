"""Rehearses a job on a local AWS: deploy, launch, take its capacity away, and judge what came back.

A rehearsal uses what a user would use: the real CDK CLI deploys the real app, the launcher Lambda is invoked, the
training script is a real process. One engine (:mod:`.engine`) runs three scenarios: managed spot (:mod:`.spot`), a warm
pool (:mod:`.pool`) and a spot fleet (:mod:`.fleet`). How a script trains is not known here: a scenario gathers what
happened (:mod:`.evidence`), and pure functions (:mod:`.verdict`, :mod:`.pool_verdict`, :mod:`.fleet_verdict`) decide
whether the run kept what it should have kept.
"""
