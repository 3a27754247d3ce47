"""The texts of notifications. They are plain text that reads well in a mail client, for a busy person. Pure.

A module a subject composes a `Notification` from the record. These are `endings`, `on_the_way`, `pools` and `sweeps`.
`composition` has the common parts and words.
"""
