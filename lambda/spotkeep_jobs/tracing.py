"""Tracing of a function, where there is a place to send traces to.

Powertools' Tracer imports the whole X-Ray SDK even when it is disabled, which costs as much as a boto3 client. Lambda
names the daemon's address when tracing is on. Without it (on one machine, in tests) nothing is imported.

Source: https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html (AWS_XRAY_DAEMON_ADDRESS)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

Handler = TypeVar("Handler", bound=Callable[..., Any])


def traced(handler: Handler) -> Handler:
    """Trace a handler and its AWS calls with X-Ray, if a daemon listens. Answers are not put into the trace."""
    if "AWS_XRAY_DAEMON_ADDRESS" not in os.environ:
        return handler
    from aws_lambda_powertools import Tracer

    tracer = Tracer(patch_modules=("botocore",))
    return cast("Handler", tracer.capture_lambda_handler(handler, capture_response=False))
