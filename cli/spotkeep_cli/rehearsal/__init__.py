"""Rehearses a job on a local AWS.

A rehearsal deploys the app, launches the job, takes its capacity away, and judges the result.

A rehearsal uses the same parts as a user. The real CDK CLI deploys the real app. The launcher Lambda is invoked. The
training script is a real process. One engine (:mod:`.engine`) runs the scenarios. The scenarios are managed spot
(:mod:`.spot`), a warm pool (:mod:`.pool`), a spot fleet (:mod:`.fleet`) and a sweep (:mod:`.sweep`). This package does
not know the inside of a training script. A scenario gathers the facts (:mod:`.evidence`). Pure functions
(:mod:`.verdict` and its like) decide the verdict on the run from these facts. A report (:mod:`.report`) holds both.
:mod:`.view` draws it.
"""
