"""Schedules: a job document that is launched again and again, by EventBridge Scheduler."""
