"""What a service says when it cannot answer now is an error that botocore's clients, and our functions, try again."""

from __future__ import annotations

import pytest
from botocore.retries import standard

from spotkeep_jobs.temporary_errors import is_temporary
from spotkeep_local.service_base.busy_errors import BUSY_ERRORS
from spotkeep_local.service_base.service_models import service_model


@pytest.mark.parametrize("service", BUSY_ERRORS)
def test_a_service_that_is_too_busy_is_asked_again(service: str) -> None:
    errors = BUSY_ERRORS[service]
    assert service_model(service).operation_names
    assert errors.throttle in standard.ThrottledRetryableChecker._THROTTLED_ERROR_CODES
    for code, status in ((errors.throttle, errors.throttle_status), (errors.server_error, 500)):
        assert is_temporary({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}})
