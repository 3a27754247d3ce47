"""The agent's work below the folders of the user that trains, with that user's rights.

The agent is root, and the training owns `/opt/ml`. It may put a link, a pipe or a device anywhere there, at any moment.
So a process that has dropped to the user for good (`process`) resolves each path there, by functions that follow no
link (`operations`). It hands open files to root, and root moves their bytes (`files`, `storage`).
"""
