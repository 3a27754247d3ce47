"""Attempts in a queue of AWS Batch. Each is one service job, for which Batch creates one training job after another."""
