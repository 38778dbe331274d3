"""The command line: python -m stablehlo_mem {optimize,profile,explain,curve,targets,calibrate,demo}.

`stablehlo_mem.__main__` and the installed script call `main`. Exit codes: 0 done, 1 the budget cannot be kept, 2 bad
input or usage, or a file cannot be read or written, 3 an internal error, 130 interrupted, 141 broken pipe.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import logging
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType

import stablehlo_mem as shm
from stablehlo_mem.cli import demo
from stablehlo_mem.errors import InputError, StableHLOMemError, TargetError
from stablehlo_mem.reports import phrases
from stablehlo_mem.reports.html import explanation_page, plan_page
from stablehlo_mem.reports.text import (
    check_report,
    chip_report,
    curve_report,
    explanation_report,
    plan_report,
    profile_json,
    profile_report,
    targets_report,
)
from stablehlo_mem.results.budget_error import BudgetError
from stablehlo_mem.results.check import CheckError
from stablehlo_mem.targets.calibration import calibration_path
from stablehlo_mem.targets.known_targets import known_targets
from stablehlo_mem.utils.plain_data import plain_data
from stablehlo_mem.utils.progress import shown

EXIT_BUDGET = 1
EXIT_USAGE = 2
EXIT_INTERNAL = 3
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141
_PIPE_WIDTH = 120
"""Columns of tables where standard output is no terminal: as wide as `str` of a result."""
_Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; prints errors without tracebacks unless --debug is given."""
    arguments, unknown = _parser().parse_known_args(argv)
    if unknown:
        arguments.parser.error(f"unrecognized arguments: {' '.join(unknown)}")  # with the usage of the command
    command: _Command = arguments.command
    try:
        if _needs_no_accelerator(arguments):
            demo.use_cpu_only()
        code = command(arguments)
        print(end="", flush=True)
        return code
    except BrokenPipeError:
        return EXIT_PIPE
    except Exception as error:
        if arguments.debug:
            raise
        print(f"stablehlo_mem: {_describe(error)}", file=sys.stderr)
        return _exit_code(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    finally:
        _discard_unwritable_output()


def _discard_unwritable_output() -> None:
    """Keeps the interpreter from raising again when it flushes standard output at exit."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def read_program(path: str) -> str | bytes:
    """Reads a program, "-" from standard input: MLIR text as `str`, bytecode and serialised Exporteds as `bytes`.

    Raises:
        InputError: the file cannot be read or is empty.
    """
    try:
        data = sys.stdin.buffer.read() if path == "-" else pathlib.Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if not data.strip():
        raise InputError(f"{path} is empty")
    try:
        text = data.decode()
    except UnicodeDecodeError:  # bytecode's magic number is no UTF-8, and every Exported holds bytecode
        return data
    return data if "\0" in text else text


def write_output(path: str, data: bytes) -> None:
    """Writes a file atomically; "-" is standard output."""
    if path == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    given, target = pathlib.Path(path), pathlib.Path(os.path.realpath(path))
    if given.exists() and not given.is_file():  # a pipe or a device cannot be replaced
        given.write_bytes(data)
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _optimize(arguments: argparse.Namespace) -> int:
    _check_output(arguments.output)
    _check_output(arguments.html)
    program = read_program(arguments.file)
    budget, target, options = _budget(arguments.budget), _targets(arguments.target), _options(arguments)
    try:
        with shown("read"):
            plan = shm.plan(program, budget, target=target, options=options)
    except BudgetError:
        if arguments.html:
            print(f"{arguments.html} is not written: nothing was planned.", file=sys.stderr)
        raise
    if arguments.html:
        write_output(arguments.html, plan_page(plan).encode())
    if not plan.fits:
        if arguments.json:
            print(plan.to_json())
        print(f"stablehlo_mem: {phrases.budget_error_text(plan)}", file=sys.stderr)
        return EXIT_BUDGET
    check, check_error = _check(plan) if arguments.check else (None, None)
    if arguments.output and check_error is None:
        result: str | bytes = plan.result
        write_output(arguments.output, result.encode() if isinstance(result, str) else result)
    report = plan_report(plan) if check is None else Group(plan_report(plan), check_report(check))
    _show(report, _plan_json(plan, check) if arguments.json else None, to_stderr=arguments.output == "-")
    if check_error is not None:
        raise check_error
    if not arguments.output:
        print("Nothing written: -o FILE keeps the program.", file=sys.stderr)
    return 0


def _check(plan: shm.Plan) -> tuple[shm.Check, CheckError | None]:
    """The check of a plan, and its error if a result is wrong."""
    try:
        with shown("run the original and the result"):
            return plan.check(), None
    except CheckError as error:
        return error.check, error


def _plan_json(plan: shm.Plan, check: shm.Check | None) -> str:
    if check is None:
        return plan.to_json()
    return json.dumps({**json.loads(plan.to_json()), "check": check.to_data()}, indent=2)


def _profile(arguments: argparse.Namespace) -> int:
    program = read_program(arguments.file)
    with shown("compile"):
        profile = shm.profile(program, target=_targets(arguments.target))
    _show(profile_report(profile), profile_json(profile) if arguments.json else None)
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    _check_output(arguments.html)
    program = read_program(arguments.file)
    budget = _budget(arguments.budget) if arguments.budget else None
    with shown("look for steps"):
        explanation = shm.explain(
            program, budget=budget, target=_targets(arguments.target), options=_options(arguments)
        )
    if arguments.html:
        write_output(arguments.html, explanation_page(explanation).encode())
    json_text = explanation.to_json() if arguments.json else None
    _show(explanation_report(explanation), json_text, to_stderr=arguments.html == "-")
    return 0


def _curve(arguments: argparse.Namespace) -> int:
    program = read_program(arguments.file)
    with shown("read"):
        points = shm.curve(program, target=_targets(arguments.target), options=_options(arguments))
    _show(curve_report(points), _json_of(points, arguments))
    return 0


def _targets_here(arguments: argparse.Namespace) -> int:
    # JAX logs each device that it does not find, which the table says too.
    logging.getLogger("jax").setLevel(logging.CRITICAL)
    targets = known_targets()
    _show(targets_report(targets), _json_of(targets, arguments))
    return 0


def _calibrate(arguments: argparse.Namespace) -> int:
    with shown("measure"):
        chip = shm.calibrate(arguments.device)
    _show(chip_report(chip), _json_of(chip, arguments))
    print(f"Kept in {calibration_path() or 'no file'}.", file=sys.stderr)
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    return demo.run_demo(tokens=arguments.tokens, long_tokens=arguments.long_tokens, report_tokens=arguments.report)


def _json_of(result: object, arguments: argparse.Namespace) -> str | None:
    return json.dumps(plain_data(result), indent=2) if arguments.json else None


def _show(renderable: RenderableType, json_text: str | None, *, to_stderr: bool = False) -> None:
    """Prints a report, or JSON in its place; to standard error if standard output carries the program."""
    stream = sys.stderr if to_stderr else sys.stdout
    if json_text is not None:
        print(json_text, file=stream)
        return
    Console(file=stream, width=None if stream.isatty() else _PIPE_WIDTH, highlight=False).print(renderable)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m stablehlo_mem", description="Make JAX programs fit in memory.")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.add_argument("--version", action="version", version=importlib.metadata.version("stablehlo-mem"))
    commands = parser.add_subparsers(required=True, metavar="{optimize,profile,explain,curve,targets,calibrate,demo}")

    def command(name: str, run: _Command, text: str, *options: argparse.ArgumentParser) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, parents=options)
        added.set_defaults(command=run, parser=added)
        return added

    # SUPPRESS: a subcommand that does not have --debug must not reset what came before it.
    debug = _option("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
    as_json = _option("--json", action="store_true", help="print JSON in place of tables")
    html = _option("--html", metavar="FILE", help="where to write the report as a page for a browser")
    modes = ("exact", "reassociate", "relaxed")
    numerics = _option("--numerics", choices=modes, default="reassociate")
    file = _option("file", help='.mlir, .mlirbc, portable artifact or serialised Exported; "-" reads standard input')
    target = _option("--target", action="append", help='e.g. "cpu", "tpu:v5e", "cuda:h200"; repeat for several')
    program = (file, target, as_json, debug)

    optimize = command("optimize", _optimize, "rewrite a program to keep a budget", *program, numerics, html)
    optimize.add_argument("--budget", required=True, help='bytes, "512MiB", "25%%", "device", "min" or "none"')
    optimize.add_argument("-o", "--output", metavar="FILE", help='where to write the result, "-" for standard output')
    optimize.add_argument("--max-compiles", type=int, default=shm.Options().max_compiles, metavar="N")
    optimize.add_argument(
        "--max-slowdown",
        type=_limit,
        default=shm.Options().max_slowdown,
        metavar="N",
        help='estimated time over the original\'s beyond which a budget is not kept; "none" for no limit',
    )
    optimize.add_argument(
        "--max-seconds", type=_limit, default=None, metavar="N", help="seconds after which planning ends with its best"
    )
    optimize.add_argument("--host-memory", metavar="BYTES", help='of the host\'s memory that plans may use, as "64GiB"')
    optimize.add_argument("--tune", action="store_true", help="time the best few plans on this machine's device")
    optimize.add_argument(
        "--check", action="store_true", help="run the original and the result and compare them before writing"
    )
    command("profile", _profile, "say where a program's memory goes", *program)
    explain = command(
        "explain", _explain, "say what could be done at the peak, what not and why", *program, numerics, html
    )
    explain.add_argument("--host-memory", metavar="BYTES", help="as for optimize")
    explain.add_argument("--budget", help="as for optimize; a quarter of the temporaries if it is not given")
    command("curve", _curve, "say which budgets are reachable, at what estimated time", *program, numerics)
    command("targets", _targets_here, "list the targets, and which can be compiled for here", as_json, debug)
    calibrate = command(
        "calibrate", _calibrate, "measure what this machine does, for plans to be compared by", as_json, debug
    )
    calibrate.add_argument("device", nargs="?", help='"cpu", "cuda" or "tpu"; the default backend if it is not given')
    run_demo = command("demo", _demo, "attention, before and after, measured here", debug)
    run_demo.add_argument("--tokens", type=int, default=demo.TOKENS, help="length run before and after")
    run_demo.add_argument(
        "--long-tokens", type=int, default=demo.LONG_TOKENS, help="length only the optimised one runs"
    )
    run_demo.add_argument("--report", type=int, default=demo.REPORT_TOKENS, help="length compiled for TPU and CUDA")
    return parser


def _option(*flags: str, **arguments: Any) -> argparse.ArgumentParser:
    """A parser of one argument, for commands to share."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(*flags, **arguments)
    return parser


def _budget(text: str) -> int | str:
    return int(text) if text.removeprefix("-").isdecimal() else text


def _limit(text: str) -> float | None:
    try:
        return None if text == "none" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'a number, or "none" for no limit, not {text!r}') from None


def _options(arguments: argparse.Namespace) -> shm.Options:
    names = ("numerics", "max_compiles", "max_slowdown", "max_seconds", "host_memory", "tune")
    return shm.Options(**{name: getattr(arguments, name) for name in names if hasattr(arguments, name)})


def _targets(names: list[str] | None) -> str | tuple[str, ...] | None:
    if not names:
        return None
    return names[0] if len(names) == 1 else tuple(names)


def _needs_no_accelerator(arguments: argparse.Namespace) -> bool:
    """Whether only the CPU and named chips are compiled for, which need no device, and none is run on."""
    targets: list[str] = getattr(arguments, "target", None) or []
    runs = getattr(arguments, "check", False)
    return bool(targets) and all(target == "cpu" or (":" in target and not runs) for target in targets)


def _check_output(path: str | None) -> None:
    """Raises before minutes of compiling if a file could not be written."""
    if path in (None, "-"):
        return
    if os.path.isdir(path):
        raise InputError(f"cannot write {path}: it is a folder")
    folder = pathlib.Path(os.path.realpath(path)).parent
    if not os.path.exists(path) and not folder.is_dir():
        raise InputError(f"cannot write {path}: no folder {folder}")


def _describe(error: Exception) -> str:
    if isinstance(error, (StableHLOMemError, OSError)):
        return str(error)
    return f"{type(error).__name__}: {error}\nThis is not your program's fault; --debug shows where it happened."


def _exit_code(error: Exception) -> int:
    if isinstance(error, BudgetError):
        return EXIT_BUDGET
    return EXIT_USAGE if isinstance(error, (InputError, TargetError, OSError)) else EXIT_INTERNAL
