"""The error tree: one root, and the drawing of it is complete."""

import inspect

from spotkeep_local import errors


def test_every_error_is_drawn_and_has_one_root() -> None:
    classes = {
        name: cls for name, cls in inspect.getmembers(errors, inspect.isclass) if cls.__module__ == errors.__name__
    }
    assert all(issubclass(cls, errors.LocalAwsError) for cls in classes.values())
    assert errors.__doc__ is not None
    assert {name for name in classes if name not in errors.__doc__} == set()


def test_a_failed_start_shows_the_end_of_the_log() -> None:
    error = errors.StartError("it ended", log_tail=["one", "two"], log_path="server.log")
    assert str(error) == "the local AWS did not start: it ended. Last lines of server.log:\n  one\n  two"
