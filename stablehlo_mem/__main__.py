"""The command line: python -m stablehlo_mem {optimize,profile,demo}.

Exit codes: 0 done, 1 the budget cannot be kept, 2 bad input or usage, 3 an error that is not the user's.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from collections.abc import Callable, Sequence

from rich.console import Console, RenderableType

import stablehlo_mem as shm
from stablehlo_mem import demo, report, wording
from stablehlo_mem.errors import BudgetError, InputError, StableHLOMemError, TargetError

EXIT_BUDGET = 1
EXIT_USAGE = 2
EXIT_INTERNAL = 3
_PIPE_WIDTH = 120


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; prints errors without tracebacks, unless asked by --debug."""
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        if _needs_no_accelerator(arguments):
            demo.use_cpu_only()
        return command(arguments)
    except Exception as error:
        if arguments.debug:
            raise
        print(f"stablehlo_mem: {_describe(error)}", file=sys.stderr)
        return _exit_code(error)
    except KeyboardInterrupt:
        return 130


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
    program = read_program(arguments.file)
    options = shm.Options(numerics=arguments.numerics, max_compiles=arguments.max_compiles)
    plan = shm.plan(program, _budget(arguments.budget), target=_targets(arguments.target), options=options)
    if not plan.fits:
        print(f"stablehlo_mem: {wording.budget_error_text(plan)}", file=sys.stderr)
        return EXIT_BUDGET
    if arguments.output:
        result: str | bytes = plan.result
        write_output(arguments.output, result.encode() if isinstance(result, str) else result)
    _show(report.plan_report(plan), plan.to_json() if arguments.json else None, aside=arguments.output == "-")
    if not arguments.output:
        print("Nothing written: -o FILE keeps the program.", file=sys.stderr)
    return 0


def _profile(arguments: argparse.Namespace) -> int:
    profile = shm.profile(read_program(arguments.file), target=_targets(arguments.target))
    _show(report.profile_report(profile), report.profile_json(profile) if arguments.json else None, aside=False)
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    return demo.run_demo(tokens=arguments.tokens, long_tokens=arguments.long_tokens, report_tokens=arguments.report)


def _show(renderable: RenderableType, json_text: str | None, *, aside: bool) -> None:
    """Prints a report, or JSON in its place: to standard error where standard output carries the program."""
    stream = sys.stderr if aside else sys.stdout
    if json_text is not None:
        print(json_text, file=stream)
        return
    Console(file=stream, width=None if stream.isatty() else _PIPE_WIDTH, highlight=False).print(renderable)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m stablehlo_mem", description="Make JAX programs fit in memory.")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    commands = parser.add_subparsers(required=True, metavar="{optimize,profile,demo}")
    _add_optimize(commands.add_parser("optimize", help="rewrite a program to keep a budget"))
    _add_profile(commands.add_parser("profile", help="say where a program's memory goes"))
    _add_demo(commands.add_parser("demo", help="attention, before and after, measured here"))
    return parser


def _add_optimize(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.add_argument("--budget", required=True, help='bytes, "512MiB", "1.5GB", "min" or "none"')
    parser.add_argument("-o", "--output", metavar="FILE", help='where to write the result, "-" for standard output')
    parser.add_argument("--numerics", choices=("exact", "reassociate", "relaxed"), default="reassociate")
    parser.add_argument("--max-compiles", type=int, default=shm.Options().max_compiles, metavar="N")
    parser.set_defaults(command=_optimize)


def _add_profile(parser: argparse.ArgumentParser) -> None:
    _add_file(parser)
    parser.set_defaults(command=_profile)


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
    parser.add_argument("--json", action="store_true", help="print JSON in place of tables")
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")


def _budget(text: str) -> int | str | None:
    if text == "none":
        return None
    return int(text) if text.removeprefix("-").isdecimal() else text


def _targets(names: list[str] | None) -> str | tuple[str, ...] | None:
    if not names:
        return None
    return names[0] if len(names) == 1 else tuple(names)


def _needs_no_accelerator(arguments: argparse.Namespace) -> bool:
    """Whether only the CPU and named chips, which need not be there, are compiled for."""
    targets: list[str] = getattr(arguments, "target", None) or []
    return bool(targets) and all(target == "cpu" or ":" in target for target in targets)


def _check_output(path: str | None) -> None:
    """Tells before minutes of compiling that the result could not be written."""
    if path in (None, "-"):
        return
    folder = pathlib.Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise InputError(f"cannot write {path}: no folder {folder}")


def _describe(error: Exception) -> str:
    if isinstance(error, StableHLOMemError):
        return str(error)
    return f"{type(error).__name__}: {error}\nThis is not your program's fault; --debug shows where it happened."


def _exit_code(error: Exception) -> int:
    if isinstance(error, BudgetError):
        return EXIT_BUDGET
    return EXIT_USAGE if isinstance(error, (InputError, TargetError)) else EXIT_INTERNAL


if __name__ == "__main__":
    sys.exit(main())
