"""The access to the local AWS, with the issued keys, the check that asks for one, and clients that have one."""
