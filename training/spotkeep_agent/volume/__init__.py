"""The volume that follows a run from instance to instance. docs/volume-protocol.md.

protocol.py decides, and knows neither AWS nor this machine. controller.py carries out its decisions, one action at a
time. file_systems.py mounts those of a job beside it.
"""
