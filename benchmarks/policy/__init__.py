"""Measures the planner on real capacity traces: policies against the optimum, forecasts, intervals, speed."""
