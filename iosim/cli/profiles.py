"""Which device a prediction is made for: the one that is given, else the one that a file names."""

from typing import TYPE_CHECKING

import click

from iosim.errors import IosimError

if TYPE_CHECKING:
    from iosim.device.profile import Profile

DEFAULT_DEVICE = "H200"  # the one device whose L2 is described


def recorded_profile(device: str | None, named: object, path: str) -> "Profile":
    """Return the profile of `device`, else of the device that the file `path` says it is from.

    Where it says nothing, a note says which one is assumed. Raises IosimError for a device whose
    L2 is not described.
    """
    from iosim.device.profile import profile

    if device is not None:
        return profile(device)
    if isinstance(named, dict):
        named = named.get("name")
    if named is None:
        click.echo(f"note: '{path}' names no device; {DEFAULT_DEVICE} is assumed", err=True)
        return profile(DEFAULT_DEVICE)
    try:
        return profile(str(named).removeprefix("NVIDIA "))
    except IosimError as error:
        raise IosimError(
            f"'{path}' was recorded on '{named}', whose L2 is not described; give "
            f"--device {DEFAULT_DEVICE} to compare with that one"
        ) from error
