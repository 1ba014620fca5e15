"""The command line: a group whose commands are imported only when they are run."""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import click

from iosim import __version__, units
from iosim.errors import IosimError

EXIT_PIPE_CLOSED = 141  # 128 + SIGPIPE, as shells have it


class LazyCommand(NamedTuple):
    """A command that is not imported yet: where it is, and its line in ``iosim --help``."""

    target: str
    help: str


COMMANDS: Mapping[str, LazyCommand] = {
    "simulate": LazyCommand(
        "iosim.cli.simulate:simulate", "Count the traffic of schedules, with the bound and the gap."
    ),
    "verify": LazyCommand(
        "iosim.cli.verify:verify", "Check the theorem and the exactness of attention over a grid."
    ),
    "explain": LazyCommand(
        "iosim.cli.explain:explain", "Print a schedule's listing with the traffic of each line."
    ),
    "bound": LazyCommand(
        "iosim.cli.bound:bound", "Give lower bounds, with their regime and range."
    ),
    "tiles": LazyCommand("iosim.cli.tiles:tiles", "Find tile sizes that fit in a memory."),
    "cache": LazyCommand(
        "iosim.cli.cache:cache",
        "Count what a cache would move, for a TRACE file or for schedules.",
    ),
    "plot": LazyCommand(
        "iosim.cli.plot:plot", "Draw traffic against length, dimension, memory or tile size."
    ),
    "fuzz": LazyCommand("iosim.cli.fuzz:fuzz", "Fuzz the merges of online softmax."),
    "claims": LazyCommand(
        "iosim.cli.claims:claims", "Recompute published claims and compare the verdicts."
    ),
    "predict": LazyCommand(
        "iosim.cli.predict:predict", "Predict the bytes at every level of a GPU."
    ),
    "audit": LazyCommand(
        "iosim.cli.audit:audit", "Set the bytes that a profiler saw beside the prediction."
    ),
    "gpu": LazyCommand("iosim.cli.gpu:gpu", "Run schedules as GPU kernels, and count their bytes."),
}


class LazyGroup(click.Group):
    """A group that imports a command when it is run, and turns errors into exit codes."""

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand], **kwargs: Any) -> None:
        """Take click's arguments and the commands by name."""
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which they were listed."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command, or return None for one that is not listed."""
        if cmd_name not in self.lazy:
            return None
        module, _, attribute = self.lazy[cmd_name].target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for one that is not listed, say which is closest."""
        name = args[0]
        if name not in self.lazy and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(units.unknown("command", name, self.lazy))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from their stored lines, importing none."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in self.lazy.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options before the command, which write the help and the version."""
        with _exit_codes():
            if sys.stdout is None:  # closed: there is no use in working for it
                raise IosimError("standard output is closed; open it, if only as > /dev/null")
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its errors become one sentence and an exit code."""
        with _exit_codes():
            result = super().invoke(ctx)
            sys.stdout.flush()  # so that a closed pipe shows here and not while Python ends
            return result


class _WrongUse(click.ClickException):
    exit_code = 2


class _Interrupted(click.ClickException):
    exit_code = 130  # 128 + SIGINT


@contextlib.contextmanager
def _exit_codes() -> Iterator[None]:
    """Turn what a command raises into one sentence and the exit code that stands for it."""
    try:
        yield
    except IosimError as error:
        raise _WrongUse(str(error)) from error
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:  # one sentence on one line, without the usage lines
        raise _WrongUse(" ".join(error.format_message().split())) from error
    except KeyboardInterrupt:
        raise _Interrupted("interrupted") from None
    except BrokenPipeError:
        _silence_stdout()
        raise click.exceptions.Exit(EXIT_PIPE_CLOSED) from None
    except OSError as error:
        if error.filename is not None:  # of a file, which commands explain: a fault of ours
            raise
        _silence_stdout()
        raise _WrongUse(
            f"standard output cannot be written ({error.strerror}); send it where there is room"
        ) from error


def _silence_stdout() -> None:
    """Let what is still buffered go nowhere: there is nobody, or no room, to take it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@click.command(
    cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Count, bound and verify the memory traffic of attention schedules.

    Lengths and counts are plain numbers or 8k (8192); memories are 25600w (words), 100KiB or
    192KB (bytes). Exit code 0: fine; 1: a verification failed; 2: wrong use; 130: interrupted.

    Try iosim simulate --seq-len 8k --head-dim 64 --sram 100KiB, and iosim COMMAND --help.
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
