"""The command line's group and the options that all commands share."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from iosim import __version__, cli
from iosim.cli import options
from iosim.errors import IosimError
from iosim.machine import machine, machine_names
from iosim.model_config import ModelHeads
from iosim.schedule import families
from iosim.units import MemorySize


@click.command()
@options.schedule
@options.shape
@options.memory
@options.tile_sizes
@options.results
def show(**values: object) -> None:
    for name, value in values.items():
        click.echo(f"{name}={value!r}")


@click.command()
@click.argument("what", type=click.Choice(["refuse", "interrupt", "fail", "colour"]))
@click.pass_context
def end(ctx: click.Context, what: str) -> None:
    if what == "refuse":
        raise IosimError("--sram 1w is too small; give 2w")
    if what == "interrupt":
        raise KeyboardInterrupt
    if what == "fail":
        ctx.exit(1)
    click.echo(str(ctx.color))


def group() -> cli.LazyGroup:
    here = __name__
    return cli.LazyGroup(
        "iosim",
        lazy={
            "show": cli.LazyCommand(f"{here}:show", "Show the options."),
            "end": cli.LazyCommand(f"{here}:end", "End."),
            "absent": cli.LazyCommand("no.such.module:command", "Never imported by the help."),
        },
        callback=cli.main.callback,
    )


def run(*args: str, **env: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(group(), args, env=env)
    return result.exit_code, result.stdout, result.stderr


def shown(*args: str) -> dict[str, str]:
    code, out, err = run("show", *args)
    assert (code, err) == (0, "")
    return dict(line.split("=", 1) for line in out.splitlines())


def test_help_lists_commands_and_imports_none() -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert "absent  Never imported by the help." in out


def test_help_of_iosim_lists_every_command() -> None:
    for flag in ("-h", "--help"):
        result = CliRunner().invoke(cli.main, [flag])
        assert result.exit_code == 0
        for name, command in cli.COMMANDS.items():
            assert f"  {name} " in result.stdout
            assert f" {command.help}\n" in result.stdout


def test_the_help_names_every_schedule_and_every_device() -> None:
    shown = " ".join(CliRunner().invoke(cli.main, ["simulate", "--help"]).stdout.split())
    assert set(families()) <= set(re.findall(r"\w+", shown))
    for name in machine_names():
        assert name in shown


def test_version() -> None:
    result = CliRunner().invoke(cli.main, ["--version"], prog_name="iosim")
    assert (result.exit_code, result.stdout) == (0, f"iosim {__version__}\n")


def test_commands_that_are_there_are_listed_with_their_own_first_line() -> None:
    modules = {command.target.partition(":")[0]: name for name, command in cli.COMMANDS.items()}
    folder = Path(cli.__file__).parent
    for path in folder.glob("*.py"):
        if path.stem in ("__init__", "cases", "options", "profiles", "recordings"):
            continue
        name = modules[f"iosim.cli.{path.stem}"]
        command = cli.main.get_command(click.Context(cli.main), name)
        assert command is not None
        assert (command.help or "").splitlines()[0] == cli.COMMANDS[name].help


def test_wrong_use_is_one_sentence_on_stderr_and_2() -> None:
    assert run("end", "refuse") == (2, "", "Error: --sram 1w is too small; give 2w\n")


def test_an_unknown_command_names_the_closest() -> None:
    code, out, err = run("shwo")
    assert (code, out) == (2, "")
    assert "Error: unknown command 'shwo'; did you mean 'show'? known: show, end" in err


def test_interruption_is_130() -> None:
    assert run("end", "interrupt") == (130, "", "Error: interrupted\n")


def test_a_command_chooses_its_exit_code() -> None:
    assert run("end", "fail") == (1, "", "")


@pytest.mark.parametrize(("value", "colour"), [("1", "False"), ("", "None")])
def test_no_color_is_respected(value: str, colour: str) -> None:
    assert run("end", "colour", NO_COLOR=value)[1] == f"{colour}\n"


def spawn(tmp_path: Path, body: str) -> subprocess.Popen[str]:
    """Start ``iosim run`` in a process of its own, where `body` is the command's code."""
    script = """\
        import sys, time, click
        from iosim import cli
        @click.command()
        def run():
            {body}
        group = cli.LazyGroup("iosim", lazy={{"run": cli.LazyCommand("__main__:run", "Run.")}})
        group(["run"])
    """
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script).format(body=body))
    # What is buffered until Python ends is the difficult case.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen(
        [sys.executable, str(path)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


BOUND = "bound --seq-len 8 --head-dim 8 --sram 99w"


def into(where: str, arguments: str) -> tuple[int, str]:
    """Run iosim with its standard output sent somewhere by a shell."""
    result = subprocess.run(
        ["sh", "-c", f'"$0" -m iosim {arguments} {where}', sys.executable],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return result.returncode, result.stderr


@pytest.mark.parametrize(
    "body", ["print('few')", "[print(i) for i in range(10**6)]", "click.echo('few')"]
)
def test_a_closed_pipe_is_quiet(tmp_path: Path, body: str) -> None:
    process = spawn(tmp_path, f"time.sleep(0.2); {body}")
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stderr:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.wait() == cli.EXIT_PIPE_CLOSED


def test_sigint_is_130(tmp_path: Path) -> None:
    process = spawn(tmp_path, "print('ready', flush=True); time.sleep(60)")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out, err) == (130, "", "Error: interrupted\n")


def test_defaults() -> None:
    values = shown()
    given = {name: value for name, value in values.items() if value != "None"}
    assert given == {
        "batch": "1",
        "dtype": "'float16'",
        "causal": "False",
        "align": "'bottom-right'",
        "dropout": "0.0",
        "form": "'table'",
    }


def test_values(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"_name_or_path": "m", "n_embd": 768, "n_head": 12}')
    args = (
        "--schedule flash1,flash2 --seq-len 1k..4k:x2 --kv-len 8k --head-dim 64,128 --value-dim 32 "
        "--batch 2 --heads 8 --kv-heads 2 --dtype bfloat16 --causal --align top-left "
        "--mask window:1k,0 --dropout 0.1 "
        f"--sram 25600w,100KiB --br 16,32 --bc 64 --tiles best --format csv --model {config}"
    )
    values = shown(*args.split(), "-o", "-", "--device", "a100")
    assert values == {
        "schedule": "('flash1', 'flash2')",
        "seq_len": "(1024, 2048, 4096)",
        "kv_len": "(8192,)",
        "head_dim": "(64, 128)",
        "value_dim": "32",
        "batch": "2",
        "heads": "8",
        "kv_heads": "2",
        "model": repr(ModelHeads("m", 64, 12, 12)),
        "dtype": "'bfloat16'",
        "causal": "True",
        "align": "'top-left'",
        "mask": "Window(left=1024, right=0)",
        "dropout": "0.1",
        "sram": repr((MemorySize(25600, "words"), MemorySize(102400, "bytes"))),
        "device": repr(machine("A100")),
        "br": "(16, 32)",
        "bc": "(64,)",
        "tiles": "'best'",
        "splits": "None",
        "pack": "None",
        "page_size": "None",
        "ranks": "None",
        "layout": "None",
        "form": "'csv'",
        "output": "None",
    }


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ("--seq-len 8q", "'--seq-len': '8q' is not a count; write a whole number such as 1000 or"),
        ("--head-dim 0", "'--head-dim': '0' is too small; the least is 1"),
        ("--sram 25600", "'--sram': '25600' has no unit; write 25600w for words or 100KiB for"),
        ("--dtype fp16", "'--dtype': unknown dtype 'fp16'; did you mean 'float16'? known: float16"),
        ("--device A10", "'--device': unknown device 'A10'; did you mean 'A100'? known: V100"),
        ("--schedule a,,b", "'--schedule': 'a,,b' has an empty name in it; write names with"),
        ("--tiles bets", "'--tiles': 'bets' is not one of 'paper', 'largest', 'best'"),
        ("--format xml", "'--format': 'xml' is not one of 'table', 'json', 'csv'"),
        ("--model none.json", "'--model': model config 'none.json' cannot be read (No such file"),
    ],
)
def test_errors_name_the_option_the_value_and_what_is_right(args: str, complaint: str) -> None:
    code, out, err = run("show", *args.split())
    assert (code, out) == (2, "")
    assert f"Error: Invalid value for {complaint}" in err


def test_an_output_that_cannot_be_written_is_refused_before_the_work() -> None:
    code, out, err = run("show", "-o", "no/out.csv")
    assert (code, out) == (2, "")
    assert err == (
        "Error: --output 'no/out.csv' cannot be written (there is no folder 'no'); "
        "give a file in a folder that exists\n"
    )


def test_heads_come_from_the_options_before_the_model() -> None:
    model = ModelHeads("m", head_dim=128, heads=32, kv_heads=8)
    assert options.resolve_heads(None, None, None, model) == ((128,), 32, 8)
    assert options.resolve_heads([64], None, None, model) == ((64,), 32, 8)
    assert options.resolve_heads(None, 16, None, model) == ((128,), 16, 16)
    assert options.resolve_heads(None, None, 4, model) == ((128,), 32, 4)
    assert options.resolve_heads([64], None, None, None) == ((64,), 1, 1)
    with pytest.raises(IosimError, match=r"^--head-dim is missing; write --head-dim 64"):
        options.resolve_heads(None, None, None, None)
    with pytest.raises(IosimError, match=r"^--kv-heads 5 does not divide --heads 32"):
        options.resolve_heads(None, None, 5, model)


def test_fast_memory_comes_from_sram_or_device() -> None:
    a100 = machine("A100")
    sizes = [MemorySize(100, "words"), MemorySize(1001, "bytes")]
    assert options.resolve_sram_words(sizes, None, "float64") == (100, 125)
    assert options.resolve_sram_words(None, a100, "float32") == (a100.fast_words("float32"),)
    assert options.resolve_sram_words(None, None, "float32") is None
    with pytest.raises(IosimError, match=r"^--sram and --device A100 both state the fast memory"):
        options.resolve_sram_words(sizes, a100, "float32")
    with pytest.raises(IosimError, match=r"^--sram 3B holds no word of float32"):
        options.resolve_sram_words([MemorySize(3, "bytes")], None, "float32")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", ["--help", "--version", "bound --help", BOUND])
def test_an_output_without_room_is_wrong_use(arguments: str) -> None:
    code, err = into("> /dev/full", arguments)
    assert code == 2
    assert err == (
        "Error: standard output cannot be written (No space left on device); "
        "send it where there is room\n"
    )


@pytest.mark.parametrize("arguments", ["--help", "--version", BOUND])
def test_a_closed_output_is_wrong_use(arguments: str) -> None:
    code, err = into(">&-", arguments)
    assert code == 2
    assert err == "Error: standard output is closed; open it, if only as > /dev/null\n"


def test_wrong_use_before_the_command_is_one_sentence_too() -> None:
    assert run("--nosuch") == (2, "", "Error: No such option '--nosuch'.\n")
