"""Who is answered: the keys that are issued, the door that asks for one, and clients that have one."""
