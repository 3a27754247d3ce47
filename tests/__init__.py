"""The tests, and the models of AWS that the benchmarks share with them."""
