"""Finds what belongs to no live run, reports it, and removes some of it by rule (I6).

    decisions     what is a finding, and whether its rule may be applied yet (pure)
    sources       one function a kind of thing: lists it, reads the record, has it judged
    collector     asks every source, applies the rules, keeps the report in the run table

A source lists first and reads the record afterwards: what is recorded in between is never taken for an orphan.
"""
