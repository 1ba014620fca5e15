"""What the GPU tests share: a device, or the reason why there is none."""

import pytest


@pytest.fixture(scope="session")
def device():
    """The current device; skips where there is no driver or no GPU, as on most machines and CI."""
    from iosim.errors import IosimError
    from iosim.gpu.launch import context

    try:
        return context().device
    except IosimError as error:
        pytest.skip(f"needs an NVIDIA GPU: {error}")
