"""Turns plain values into what a person reads: text, tables, timelines. Nothing here asks AWS anything."""
