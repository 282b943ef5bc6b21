"""A registry in memory, and a manager that uses it."""

import pytest
from registry_shell import Shell

from roq.coordination.memory import MemoryEnsemble


@pytest.fixture
def ensemble() -> MemoryEnsemble:
    return MemoryEnsemble()


@pytest.fixture
def shell(ensemble: MemoryEnsemble) -> Shell:
    return Shell(ensemble)
