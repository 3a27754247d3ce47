"""The only package that touches ministack's internals, a module for one or a few of its services.

ministack is pinned exactly because of these names: they are not its public interface. `application.check` refuses every
other version. The package's tests name what has moved, so that an upgrade fails at once and in one place.

ministack reads its environment while it is imported. `server.server_environment` must be in force before a module of
this package is imported.
"""
