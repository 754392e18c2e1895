"""With what a service's process ends."""

import pytest

from spotline.bootstrap.process import EXIT_CONFIG, EXIT_FAILED, EXIT_OK, run_to_exit_code
from spotline.contracts.errors import ConfigError, LedgerDamaged, ProviderUnavailable


async def ending(error):
    if error is not None:
        raise error


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (None, EXIT_OK, ""),
        (ConfigError("no such store"), EXIT_CONFIG, "no such store"),
        (
            LedgerDamaged("spend", "job_id='j'", "the row is not what was written"),
            EXIT_CONFIG,
            "the ledger is damaged in spend (job_id='j')",
        ),
        (ProviderUnavailable("the ledger does not answer"), EXIT_FAILED, ""),
    ],
)
def test_what_ends_a_service_is_told_and_gives_its_exit_code(capsys, error, code, told, grouped):
    if grouped and error is not None:
        error = BaseExceptionGroup("tasks", [error])

    assert run_to_exit_code(ending(error)) == code
    assert told in capsys.readouterr().err


def test_what_nobody_foresaw_is_raised():
    with pytest.raises(ZeroDivisionError):
        run_to_exit_code(ending(ExceptionGroup("tasks", [ZeroDivisionError("bug")])))
