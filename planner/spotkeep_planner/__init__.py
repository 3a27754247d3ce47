"""Plans a training run before it is paid for, with policies for spot capacity, replays on real traces, and forecasts.

Data flows one way. `traces` reads capacity, `policies` decide, `replay` plays them against each other. `forecast` turns
a replay into the figures that a person wants. A function in the cloud needs `steering` alone, which is the standard
library alone. Nothing is imported here, so that importing `steering` loads no array.
"""
