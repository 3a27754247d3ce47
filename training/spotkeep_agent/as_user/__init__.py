"""What the agent does with the rights of the user that trains: all that it touches below that user's folders.

The agent is root, and the training owns what is in `/opt/ml`: it may put a link, a pipe or a device anywhere there, at
any moment. So a path below such a folder is resolved in a process that has dropped to the user for good (`process`), by
functions that follow no link (`operations`); what comes back to root is open files, whose bytes root then moves
(`files`, `storage`).
"""
