"""The only package that touches ministack's internals, with a module for one or a few of its services.

ministack is pinned to one exact version, because these names are not its public interface. `application.check` refuses
every other version. The package's tests name each name that has moved, so that an upgrade fails at once and in one
place.

ministack reads its environment while it is imported. `server.server_environment` must be in force before a module of
this package is imported.
"""
