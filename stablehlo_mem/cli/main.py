"""The command line: python -m stablehlo_mem {optimize,profile,explain,curve,targets,calibrate,demo}.

Exit codes: 0 done, 1 the budget cannot be kept, 2 bad input or usage, or the system refused to read or write, 3 an
error that is not the user's; 130 where it was interrupted, 141 where nobody read on.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import logging
import os
import pathlib
import sys
from collections.abc import Callable, Generator, Sequence

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
from stablehlo_mem.targets.registry import known_targets
from stablehlo_mem.utils.plain_data import plain_data
from stablehlo_mem.utils.progress import listening

EXIT_BUDGET = 1
EXIT_USAGE = 2
EXIT_INTERNAL = 3
EXIT_PIPE = 141
_PIPE_WIDTH = 120


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; prints errors without tracebacks, unless asked by --debug."""
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.command
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
        return 130
    finally:
        _drop_what_cannot_be_written()


def _drop_what_cannot_be_written() -> None:
    """Else the interpreter complains once more when it flushes on its way out."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def read_program(path: str) -> str | bytes:
    """Reads a program, "-" from standard input, telling text from the binary kinds by its content.

    Raises:
        InputError: the file cannot be read or is empty.
    """
    try:
        data = sys.stdin.buffer.read() if path == "-" else pathlib.Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if not data.strip():
        raise InputError(f"{path} is empty")
    return sniff(data)


def sniff(data: bytes) -> str | bytes:
    """MLIR text as `str`; bytecode, portable artifacts and serialised Exporteds stay `bytes`."""
    try:
        text = data.decode()
    except UnicodeDecodeError:  # bytecode's magic number is no UTF-8, and every Exported holds bytecode
        return data
    return data if "\0" in text else text


def write_output(path: str, data: bytes) -> None:
    """Writes a file whole or not at all; "-" is standard output."""
    if path == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    target = pathlib.Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # a pipe or a device cannot be replaced
        target.write_bytes(data)
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
        with _progress():
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
    check, wrong = _checked(plan) if arguments.check else (None, None)
    if arguments.output and wrong is None:
        result: str | bytes = plan.result
        write_output(arguments.output, result.encode() if isinstance(result, str) else result)
    shown = plan_report(plan) if check is None else Group(plan_report(plan), check_report(check))
    _show(shown, _plan_json(plan, check) if arguments.json else None, aside=arguments.output == "-")
    if wrong is not None:
        raise wrong
    if not arguments.output:
        print("Nothing written: -o FILE keeps the program.", file=sys.stderr)
    return 0


def _checked(plan: shm.Plan) -> tuple[shm.Check, CheckError | None]:
    """What a check of a plan found, and the error it ends with where that is wrong."""
    try:
        with _progress("run the original and the result"):
            return plan.check(), None
    except CheckError as error:
        return error.check, error


def _plan_json(plan: shm.Plan, check: shm.Check | None) -> str:
    if check is None:
        return plan.to_json()
    return json.dumps({**json.loads(plan.to_json()), "check": check.to_data()}, indent=2)


def _profile(arguments: argparse.Namespace) -> int:
    program = read_program(arguments.file)
    with _progress("compile"):
        profile = shm.profile(program, target=_targets(arguments.target))
    _show(profile_report(profile), profile_json(profile) if arguments.json else None, aside=False)
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    _check_output(arguments.html)
    program = read_program(arguments.file)
    budget = _budget(arguments.budget) if arguments.budget else None
    with _progress("look for steps"):
        explanation = shm.explain(
            program, budget=budget, target=_targets(arguments.target), options=_options(arguments)
        )
    if arguments.html:
        write_output(arguments.html, explanation_page(explanation).encode())
    json_text = explanation.to_json() if arguments.json else None
    _show(explanation_report(explanation), json_text, aside=arguments.html == "-")
    return 0


def _curve(arguments: argparse.Namespace) -> int:
    program = read_program(arguments.file)
    with _progress():
        points = shm.curve(program, target=_targets(arguments.target), options=_options(arguments))
    json_text = json.dumps(plain_data(points), indent=2) if arguments.json else None
    _show(curve_report(points), json_text, aside=False)
    return 0


def _targets_here(arguments: argparse.Namespace) -> int:
    # JAX logs at length what devices it does not find: that is what the table says.
    logging.getLogger("jax").setLevel(logging.CRITICAL)
    targets = known_targets()
    _show(targets_report(targets), json.dumps(plain_data(targets), indent=2) if arguments.json else None)
    return 0


def _calibrate(arguments: argparse.Namespace) -> int:
    with _progress("measure"):
        chip = shm.calibrate(arguments.device)
    _show(chip_report(chip), json.dumps(plain_data(chip), indent=2) if arguments.json else None)
    print(f"Kept in {calibration_path() or 'no file'}.", file=sys.stderr)
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    return demo.run_demo(tokens=arguments.tokens, long_tokens=arguments.long_tokens, report_tokens=arguments.report)


@contextlib.contextmanager
def _progress(first: str = "read") -> Generator[None]:
    """Shows what planning is at while it lasts, to those who watch a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(first) as status, listening(status.update):
        yield


def _show(renderable: RenderableType, json_text: str | None, *, aside: bool = False) -> None:
    """Prints a report, or JSON in its place: to standard error where standard output carries the program."""
    stream = sys.stderr if aside else sys.stdout
    if json_text is not None:
        print(json_text, file=stream)
        return
    Console(file=stream, width=None if stream.isatty() else _PIPE_WIDTH, highlight=False).print(renderable)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m stablehlo_mem", description="Make JAX programs fit in memory.")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.add_argument("--version", action="version", version=importlib.metadata.version("stablehlo-mem"))
    commands = parser.add_subparsers(required=True, metavar="{optimize,profile,explain,curve,targets,calibrate,demo}")
    _add_optimize(commands.add_parser("optimize", help="rewrite a program to keep a budget"))
    _add_profile(commands.add_parser("profile", help="say where a program's memory goes"))
    _add_explain(commands.add_parser("explain", help="say what could be done at the peak, what not and why"))
    _add_curve(commands.add_parser("curve", help="say which budgets are reachable, at what estimated time"))
    _add_targets(commands.add_parser("targets", help="list the targets, and which can be compiled for here"))
    _add_calibrate(commands.add_parser("calibrate", help="measure what this machine does, for plans to be compared by"))
    _add_demo(commands.add_parser("demo", help="attention, before and after, measured here"))
    return parser


def _add_optimize(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument("--budget", required=True, help='bytes, "512MiB", "1.5GB", "min" or "none"')
    parser.add_argument("-o", "--output", metavar="FILE", help='where to write the result, "-" for standard output')
    _add_numerics(parser)
    parser.add_argument("--max-compiles", type=int, default=shm.Options().max_compiles, metavar="N")
    parser.add_argument("--tune", action="store_true", help="time the best few plans on this machine's device")
    parser.add_argument(
        "--check", action="store_true", help="run the original and the result and compare them before writing"
    )
    _add_html(parser)
    parser.set_defaults(command=_optimize)


def _add_profile(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.set_defaults(command=_profile)


def _add_explain(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument("--budget", help="as for optimize; a quarter of the temporaries if it is not given")
    _add_numerics(parser)
    _add_html(parser)
    parser.set_defaults(command=_explain)


def _add_curve(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    _add_numerics(parser)
    parser.set_defaults(command=_curve)


def _add_targets(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    parser.set_defaults(command=_targets_here)


def _add_calibrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("device", nargs="?", help='"cpu", "cuda" or "tpu"; the default backend if it is not given')
    _add_common(parser)
    parser.set_defaults(command=_calibrate)


def _add_numerics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--numerics", choices=("exact", "reassociate", "relaxed"), default="reassociate")


def _add_html(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--html", metavar="FILE", help="where to write the report as a page for a browser")


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokens", type=int, default=demo.TOKENS, help="length run before and after")
    parser.add_argument("--long-tokens", type=int, default=demo.LONG_TOKENS, help="length only the optimised one runs")
    parser.add_argument("--report", type=int, default=demo.REPORT_TOKENS, help="length compiled for TPU and CUDA")
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
    parser.set_defaults(command=_demo)


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", help='.mlir, .mlirbc, portable artifact or serialised Exported; "-" reads standard input'
    )
    parser.add_argument("--target", action="append", help='e.g. "cpu", "tpu:v5e", "cuda:h200"; repeat for several')
    _add_common(parser)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON in place of tables")
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")


def _budget(text: str) -> int | str | None:
    if text == "none":
        return None
    return int(text) if text.removeprefix("-").isdecimal() else text


def _options(arguments: argparse.Namespace) -> shm.Options:
    most = getattr(arguments, "max_compiles", shm.Options().max_compiles)
    tune = getattr(arguments, "tune", False)
    return shm.Options(numerics=arguments.numerics, max_compiles=most, tune=tune)


def _targets(names: list[str] | None) -> str | tuple[str, ...] | None:
    if not names:
        return None
    return names[0] if len(names) == 1 else tuple(names)


def _needs_no_accelerator(arguments: argparse.Namespace) -> bool:
    """Whether only the CPU and named chips, which need not be there, are compiled for, and none is run on."""
    targets: list[str] = getattr(arguments, "target", None) or []
    runs = getattr(arguments, "check", False)
    return bool(targets) and all(target == "cpu" or (":" in target and not runs) for target in targets)


def _check_output(path: str | None) -> None:
    """Tells before minutes of compiling that something could not be written."""
    if path in (None, "-"):
        return
    folder = pathlib.Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise InputError(f"cannot write {path}: no folder {folder}")


def _describe(error: Exception) -> str:
    if isinstance(error, (StableHLOMemError, OSError)):
        return str(error)
    return f"{type(error).__name__}: {error}\nThis is not your program's fault; --debug shows where it happened."


def _exit_code(error: Exception) -> int:
    if isinstance(error, BudgetError):
        return EXIT_BUDGET
    return EXIT_USAGE if isinstance(error, (InputError, TargetError, OSError)) else EXIT_INTERNAL
