"""Plans a training run before it is paid for: policies for spot capacity, replayed on real traces, and forecasts.

Data flows one way: `traces` reads capacity, `policies` decide, `replay` plays them against each other and against
`optimum`, `forecast` turns a replay into what a person wants to know. `steering` is what a function in the cloud needs
of it all, and is the standard library alone. Nothing is imported here, so that importing `steering` loads no array.
"""
