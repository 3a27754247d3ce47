"""Attempts in a queue of AWS Batch's: one service job each, for which Batch makes training jobs one after another."""
