"""What belongs to no live run, or contradicts the record: found, reported, and by rule removed (I6).

    facts        what sources see, as the decisions take it (pure)
    decisions    facts -> findings (pure)
    sources      one class a kind of thing: gathers its facts through the seams, and removes what is decided
    object_store the checkpoint bucket, as far as orphans need it: the only module here that calls a client
    watch        asks every source, applies the rules, and keeps what was found in the run table

What a finding is, and which rule each kind has, is among the facts that everyone shares (`facts.orphan_findings`);
`functions.orphan_wiring` puts the sources on real clients.

What is listed is listed first, and the record is read afterwards: what is recorded in between is never left over.
"""
