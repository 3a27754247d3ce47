"""Measures of the planner on real capacity traces, for policies against the optimum, forecasts, intervals and speed."""
