"""Ctrl-C is acted on, also when the exception it raised was lost on its way."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from spotkeep_cli.signals import CtrlC


def test_a_wait_that_no_signal_disturbs_waits_and_the_handler_from_before_is_back_afterwards() -> None:
    waited: list[bool] = []
    before = signal.getsignal(signal.SIGINT)
    with CtrlC(lambda: waited.append(True)) as ctrl_c:
        assert signal.getsignal(signal.SIGINT) != before
        ctrl_c.pause()
    assert waited
    assert signal.getsignal(signal.SIGINT) == before


def test_a_lost_interrupt_is_raised_again_by_the_next_wait() -> None:
    with CtrlC(lambda: pytest.fail("waited")) as ctrl_c:
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            ctrl_c.pause()
