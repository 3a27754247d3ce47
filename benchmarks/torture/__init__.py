"""Tries to break checkpoints: kills, faulty disks, lost writes, flipped bits, notices. The verdict is measured.

Run with ``make torture-checkpoint``. Each trial ruins a training in one way, resumes it, and compares every restored
state and the final one with an uninterrupted training, bit for bit.
"""
