"""Rehearses a job on a local AWS: deploy, launch, take its capacity away, and judge what came back.

A rehearsal uses what a user would use: the real CDK CLI deploys the real app, the launcher Lambda is invoked, the
training script is a real process. One engine (:mod:`.engine`) runs the scenarios: managed spot (:mod:`.spot`), a warm
pool (:mod:`.pool`), a spot fleet (:mod:`.fleet`), a sweep (:mod:`.sweep`). How a script trains is not known here: a
scenario gathers what happened (:mod:`.evidence`), and pure functions (:mod:`.verdict` and its like) decide whether the
run kept what it should have kept. A report (:mod:`.report`) holds both. :mod:`.report_view` draws it.
"""
