"""Finds things in AWS that belong to no live run, reports them, and removes some of them by rule (I6).

    decisions     decides if a thing is a finding, and if its rule may be applied yet (pure)
    sources       has one function for each kind of thing, which lists it, reads the record, and has it judged
    collector     asks every source, applies the rules, keeps the report in the run table

A source lists first and reads the record afterwards. So a thing that is recorded in between is never taken for an
orphan.
"""
