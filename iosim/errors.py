"""The errors that iosim raises for wrong input; the command line turns them into exit code 2."""


class IosimError(ValueError):
    """A value that cannot be used: one sentence with the option, the value and what is right."""


class ScheduleError(IosimError):
    """A schedule that is not valid: it reads a tile that is not resident, or leaves one behind."""


class CapacityError(ScheduleError):
    """A schedule that needs more words of fast memory than there are."""


class UnsupportedError(ScheduleError):
    """A schedule that has no form for something that the shape asks for, such as dropout."""
