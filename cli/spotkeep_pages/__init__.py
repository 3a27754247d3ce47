"""Pages that a person opens in a browser. One HTML file each, which needs no network and runs no script.

Python 3.9 and the standard library suffice here, because `spotkeep rehearse -- COMMAND` writes a page, too. Text of any
origin is content of elements and never markup. So a name or a line of a log cannot break a page.
"""
