"""What notifications say: plain text that reads well in a mail client, for a person who has other things to do. Pure.

One module a subject, each with functions that compose a `Notification` from the record: `endings`, `on_the_way`,
`pools`, `sweeps`, `schedules`. Under them `composition`, what every notification has, and `run_summary` and `wording`,
how it says it.
"""
