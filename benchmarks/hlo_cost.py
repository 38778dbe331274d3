"""What a compiled program costs by a roofline, counted from the text of its optimised HLO, without running it.

The kernels are walked with trip counts. Each takes the longer of its traffic and its arithmetic, and a launch. Slices
count as slices, updates in place as what they write. A value of a loop's body that is made and read there, and fits, is
on the chip: the L2 of a GPU by its size, the VMEM of a TPU where the compiler says so (`S(1)`). Arrays that a TPU lays
out in tiles are as large as these. Asynchronous copies between the memories run beside the kernels, while these leave
the memory idle.
A model, not a clock: good for factors, not for 5%.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Sequence

from stablehlo_mem.analysis.op_cost import ELEMENT_FLOPS

_BITS = {"pred": 8, "bf16": 16, "c64": 64, "c128": 128}
_SHAPE = re.compile(r"\b(pred|bf16|[suf]\d+\w*|c64|c128)\[([\d,]*)\](\{[^}]*\})?")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_LINE = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)(?= [\w\-]+\()|\S+) ([\w\-]+)\((.*)$")
_NO_KERNELS = (
    "parameter tuple get-tuple-element bitcast constant after-all opt-barrier partition-id replica-id iota copy-done"
    " async-done async-update"
)
_FREE = frozenset(_NO_KERNELS.split())
_SLICES = frozenset({"dynamic-slice", "slice", "gather"})
_UPDATE = "dynamic-update-slice"
_COPIES = frozenset({"copy-start", "slice-start"})
_ONLINE_SOFTMAX = "online-softmax"
"""XLA:TPU's own kernel of a softmax and the matmul after it."""
_ARITHMETIC = (
    "abs add and ceil clamp compare convert cosine divide exponential exponential-minus-one floor log log-plus-one"
    " logistic maximum minimum multiply negate not or power remainder round-nearest-even rsqrt select shift-left"
    " shift-right-arithmetic shift-right-logical sign sine sqrt subtract tan tanh xor erf"
)
_ELEMENTWISE = frozenset(_ARITHMETIC.split())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates:
    """What a chip does in a second, by its data sheet, and what starting a kernel costs.

    Attributes:
        memory: bytes of main memory.
        on_chip: bytes of the L2 or VMEM.
        half, single: FLOPs of matmuls of 2-byte floats, and of float32.
        vector: operations of elementwise arithmetic.
        launch: seconds to start a kernel.
        on_chip_value: bytes of the largest value that stays in a cache; 0 if the compiler's text says what is on chip.
        single_is_half: whether matmuls of float32 round their operands to bfloat16, unless asked not to.
    """

    memory: float
    on_chip: float
    half: float
    single: float
    vector: float
    launch: float
    on_chip_value: int
    single_is_half: bool = False


RATES = {
    # The H200's data sheet; 132 cores of 128 lanes at 1.98 GHz. Half of the 50 MB L2 holds a value while it is read and
    # the next is written; it has about twice the bandwidth. A launch within a graph takes some 2 us.
    "cuda:h200": Rates(
        memory=4.8e12, on_chip=9.6e12, half=9.89e14, single=6.7e13, vector=3.35e13, launch=2e-6, on_chip_value=24 << 20
    ),
    # Google Cloud's page of the v5e. float32 matmuls at the highest precision are six passes in bfloat16. The vector
    # unit has 8 x 128 lanes of 4 units at 1.5 GHz. VMEM is about twenty times as fast as HBM. A kernel fills and drains
    # its pipeline, which takes about a microsecond.
    "tpu:v5e": Rates(
        memory=8.19e11,
        on_chip=1.6e13,
        half=1.97e14,
        single=3.3e13,
        vector=6.1e12,
        launch=1e-6,
        on_chip_value=0,
        single_is_half=True,
    ),
}


@dataclasses.dataclass(frozen=True)
class Instruction:
    """A line of a computation: `operands` are the names of its operands, `rest` is all after the first parenthesis."""

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    rest: str

    def called(self, *keys: str) -> str | None:
        found = re.search(rf"(?:{'|'.join(keys)})=%?([\w.\-]+)", self.rest)
        return found[1] if found else None

    @functools.cached_property
    def nbytes(self) -> float:
        return shape_bytes(self.shape)

    @functools.cached_property
    def on_chip_bytes(self) -> float:
        """Of those arrays that the compiler places on the chip."""
        return shape_bytes(self.shape, on_chip_only=True)


Computation = dict[str, Instruction]


@dataclasses.dataclass(frozen=True)
class Work:
    """FLOPs of matmuls at the rate of 2-byte floats and of float32, and of all else."""

    half: float = 0.0
    single: float = 0.0
    vector: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.half + other.half, self.single + other.single, self.vector + other.vector)


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel that runs so many times: its traffic through memory and on the chip, its arithmetic.

    Attributes:
        is_copy: it is an asynchronous copy between the memories, which other kernels need not wait for.
    """

    name: str
    times: int
    memory_bytes: float
    on_chip_bytes: float
    work: Work
    is_copy: bool = False

    def seconds(self, rates: Rates) -> float:
        """Of one execution."""
        if self.is_copy:
            return self.memory_bytes / rates.memory
        traffic = self.memory_bytes / rates.memory + self.on_chip_bytes / rates.on_chip
        matmul = self.work.half / rates.half + self.work.single / rates.single
        return max(traffic, matmul, self.work.vector / rates.vector) + rates.launch

    def idle_seconds(self, rates: Rates) -> float:
        """How long one execution leaves the memory idle."""
        return self.seconds(rates) - self.memory_bytes / rates.memory


@dataclasses.dataclass(frozen=True)
class Cost:
    """The sums over all kernels."""

    launches: int
    nbytes: float
    flops: float
    seconds: float


def cost(text: str, target: str) -> Cost:
    """What a program costs, from its HLO."""
    rates, kernels = RATES[target], kernels_of(text, RATES[target])
    copies = sum(k.times * k.seconds(rates) for k in kernels if k.is_copy)
    idle = sum(k.times * k.idle_seconds(rates) for k in kernels)
    return Cost(
        launches=sum(k.times for k in kernels if not k.is_copy),
        nbytes=sum(k.times * (k.memory_bytes + k.on_chip_bytes) for k in kernels),
        flops=sum(k.times * (k.work.half + k.work.single + k.work.vector) for k in kernels),
        seconds=sum(k.times * k.seconds(rates) for k in kernels) - min(copies, idle),
    )


def kernels_of(text: str, rates: Rates) -> list[Kernel]:
    """All kernels of a program, those of loops' bodies as often as they run."""
    counter = _Counter(*parse(text), rates)
    return list(counter.walk(counter.entry, 1, False))


def parse(text: str) -> tuple[dict[str, Computation], str]:
    """The computations of a module by name, and the name of the entry."""
    computations: dict[str, Computation] = {}
    current, entry = "", ""
    for line in text.splitlines():
        if head := _HEAD.match(line.rstrip()):
            current = head[2]
            computations[current] = {}
            entry = current if head[1] else entry
        elif line.startswith("}"):
            current = ""
        elif current and (found := _LINE.match(line)):
            name, shape, opcode, rest = found.groups()
            operands = tuple(re.findall(r"%([\w.\-]+)", rest.split("), ")[0].split(")")[0]))
            computations[current][name] = Instruction(name, shape, opcode, operands, rest)
    return computations, entry


def instructions(
    computations: dict[str, Computation], name: str | None, times: int = 1, in_loop: bool = False
) -> Iterator[tuple[Computation, Instruction, int, bool]]:
    """The instructions of a computation and of those it calls, with what they stand in, how often they run, and whether
    that is in a loop. Of branches the last one's.
    """
    block = computations.get(name or "", {})
    for one in block.values():
        if one.opcode == "while":
            yield from instructions(computations, one.called("body"), times * _trips(computations, one), True)
        elif one.opcode == "call" or (one.opcode == "async-start" and "calls=" in one.rest):
            yield from instructions(computations, one.called("to_apply", "calls"), times, in_loop)
        elif one.opcode == "conditional":
            branches = [b for b in re.findall(r"%([\w.\-]+)", one.rest.split("),")[-1]) if b in computations]
            yield from instructions(computations, branches[-1] if branches else None, times, in_loop)
        else:
            yield block, one, times, in_loop


def _trips(computations: dict[str, Computation], loop: Instruction) -> int:
    """What the compiler knows, or the constant in the condition: JAX's loops and ours count up from zero."""
    if known := re.search(r'known_trip_count":\{"n":"(\d+)"', loop.rest):
        return int(known[1])
    condition = computations.get(loop.called("condition") or "", {}).values()
    constants = [int(n[1]) for one in condition if (n := re.match(r"(\d+)\)", one.rest))]
    return max((n for n in constants), default=1)


def shape_bytes(shape: str, *, on_chip_only: bool = False) -> float:
    """Bytes of the arrays of a shape as they lie in memory: whole tiles, where the compiler lays them out in tiles."""
    arrays = _SHAPE.findall(shape)
    return sum(
        _bits(t) / 8 * _padded_elements(dims, layout)
        for t, dims, layout in arrays
        if not on_chip_only or "S(1)" in layout
    )


def _copied_bytes(start: Instruction) -> float:
    """Bytes that an asynchronous copy moves through main memory. It has a tuple of source and result; the smaller one
    is what is copied, from one memory to the other or within main memory."""
    arrays = [found[0] for found in _SHAPE.finditer(start.shape) if found[2]]
    sizes = sorted(shape_bytes(array) for array in arrays)
    return sizes[0] * (1 if start.on_chip_bytes else 2)


def dimensions(shape: str) -> list[int]:
    """Of the first array of a shape."""
    found = _SHAPE.search(shape)
    return [int(n) for n in found[2].split(",") if n] if found else []


def _bits(dtype: str) -> int:
    return _BITS.get(dtype) or int(re.findall(r"\d+", dtype)[0])


def _padded_elements(dims: str, layout: str) -> int:
    """Of an array with a layout such as {0,2,1:T(8,128)}: its dimensions, the innermost first, and their tile."""
    sizes = [int(n) for n in dims.split(",") if n]
    if tile := re.search(r"T\(([\d,]*)\)", layout):
        order = [int(n) for n in layout[1:].partition(":")[0].split(",") if n]
        tile_sizes = [int(n) for n in tile[1].split(",")]
        for dimension, size in zip(order, reversed(tile_sizes), strict=False):
            sizes[dimension] = -(-sizes[dimension] // size) * size
    return math.prod(sizes)


class _Counter:
    """Walks a module."""

    def __init__(self, computations: dict[str, Computation], entry: str, rates: Rates):
        self.computations, self.entry, self.rates = computations, entry, rates

    def walk(self, name: str | None, times: int, in_loop: bool) -> Iterator[Kernel]:
        for block, one, count, is_inside in instructions(self.computations, name, times, in_loop):
            if one.opcode not in _FREE and not one.opcode.endswith("-done") and "AllocateBuffer" not in one.rest:
                yield self.kernel(block, one, count, is_inside)

    def kernel(self, block: Computation, one: Instruction, times: int, in_loop: bool) -> Kernel:
        if one.opcode in _COPIES:
            return Kernel(one.name, times, _copied_bytes(one), 0.0, Work(), is_copy=True)
        inner = self.computations.get(one.called("calls") or "", {}) if one.opcode == "fusion" else {}
        operands = [block[v] for v in one.operands if v in block]
        reads, written = self.traffic(one, operands, inner)
        on_chip = sum(n * self.share_on_chip(source, in_loop) for n, source in zip(reads, operands, strict=True))
        on_chip += written * self.share_on_chip(one, in_loop)
        return Kernel(
            name=one.name,
            times=times,
            memory_bytes=sum(reads) + written - on_chip,
            on_chip_bytes=on_chip,
            work=self.work(inner) if inner else self.work({one.name: one}, block),
        )

    def share_on_chip(self, value: Instruction, in_loop: bool) -> float:
        """The share on the chip of a value that a kernel reads or writes."""
        if not self.rates.on_chip_value:
            return value.on_chip_bytes / value.nbytes if value.nbytes else 0.0
        is_made_here = value.opcode not in ("parameter", "get-tuple-element")
        return float(is_made_here and value.nbytes <= self.rates.on_chip_value)

    def traffic(
        self, one: Instruction, operands: Sequence[Instruction], inner: Computation
    ) -> tuple[list[float], float]:
        """Bytes read of each operand, and written."""
        reads, written = [o.nbytes for o in operands], one.nbytes
        if inner:
            parameters = {int(p.rest.split(")")[0]): p.name for p in inner.values() if p.opcode == "parameter"}
            for i, operand in enumerate(operands):
                reads[i], less = self.use(inner, parameters[i], operand.nbytes)
                written -= less
        elif one.opcode == _UPDATE:
            reads, written = [0, reads[1], *(0 for _ in reads[2:])], reads[1]
        elif one.opcode in _SLICES:
            reads = [one.nbytes, *(0 for _ in reads[1:])]
        elif one.opcode == "custom-call":
            written = shape_bytes(re.sub(r"s8\[\d+\]", "", one.shape))  # without the workspace
        return reads, max(0.0, written)

    def use(self, block: Computation, parameter: str, whole: float) -> tuple[float, float]:
        """Bytes that a fused computation reads of a parameter, and what less than the whole it writes of it."""
        users = [one for one in block.values() if parameter in one.operands]
        if users and all(one.opcode in _SLICES and one.operands[0] == parameter for one in users):
            return min(whole, sum(one.nbytes for one in users)), 0.0
        if users and all(one.opcode == _UPDATE and one.operands[0] == parameter for one in users):
            return 0.0, whole - sum(block[one.operands[1]].nbytes for one in users)
        if len(users) == 1 and users[0].opcode == "fusion":
            inner = self.computations[users[0].called("calls") or ""]
            number = str(users[0].operands.index(parameter))
            name = next(p.name for p in inner.values() if p.opcode == "parameter" and p.rest.startswith(f"{number})"))
            return self.use(inner, name, whole)
        if len(users) == 1 and users[0].opcode == "bitcast":
            return self.use(block, users[0].name, whole)
        return whole, 0.0

    def work(self, block: Computation, around: Computation | None = None) -> Work:
        """FLOPs of a computation."""
        shapes = {**(around or {}), **block}
        return sum((self.work_of(one, shapes) for one in block.values()), Work())

    def work_of(self, one: Instruction, shapes: Computation) -> Work:
        elements = math.prod(dimensions(one.shape))
        if one.opcode == "fusion":
            return self.work(self.computations[one.called("calls") or ""])
        if stated := re.search(r'"cost_estimate":\{"flops":"(\d+)","transcendentals":"(\d+)"', one.rest):
            # A Pallas kernel's own account: matmuls, which take float32 as bfloat16 too, and exponentials.
            return Work(half=float(stated[1]), vector=int(stated[2]) * ELEMENT_FLOPS["exponential"])
        if one.opcode in ("dot", "convolution", "custom-call"):
            flops, vector = _matmul_flops(one, shapes), _library_flops(one, shapes)
            is_half = self.multiplies_halves(one, shapes)
            return Work(flops * is_half, flops * (not is_half), vector)
        if one.opcode in _ELEMENTWISE:
            return Work(vector=elements * ELEMENT_FLOPS.get(one.opcode.replace("-", "_"), 1))
        if one.opcode in ("reduce", "reduce-window") and one.operands and one.operands[0] in shapes:
            return Work(vector=math.prod(dimensions(shapes[one.operands[0]].shape)))
        if one.opcode == "sort":
            return Work(vector=elements * math.log2(max(2, *dimensions(one.shape))))
        return Work()

    def multiplies_halves(self, one: Instruction, shapes: Computation) -> bool:
        """Whether a matmul's operands are 2-byte floats, or are taken for such: a TPU's default for float32."""
        if self.rates.single_is_half and "highest" not in one.rest:
            return True
        return all(re.match(r"bf16|f16|f8", shapes[v].shape) for v in one.operands[:2] if v in shapes)


def _library_flops(one: Instruction, shapes: Computation) -> float:
    """Elementwise arithmetic of a call of a library: a top-k looks at each element once."""
    elements = math.prod(dimensions(shapes[one.operands[0]].shape)) if one.operands and one.operands[0] in shapes else 0
    if one.name.startswith(_ONLINE_SOFTMAX):
        return elements * (3 + ELEMENT_FLOPS["exponential"] + ELEMENT_FLOPS["divide"])
    return float(elements) if "TopK" in one.rest else 0.0


def _matmul_flops(one: Instruction, shapes: Computation) -> float:
    """2 x elements of the result x elements that each sums up."""
    if len(one.operands) < 2 or any(v not in shapes for v in one.operands[:2]):
        return 0.0
    result = math.prod(dimensions(one.shape))
    left, right = (dimensions(shapes[v].shape) for v in one.operands[:2])
    if "fmha" in one.rest:
        return _fused_attention_flops(one, left)
    if one.name.startswith(_ONLINE_SOFTMAX):
        return 2.0 * math.prod(left) * right[-1]
    if labels := re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", one.rest):
        depth = right[labels[2].index("i")] if "i" in labels[2] else 1
        window = re.search(r"window=\{([^}]*)\}", one.rest)
        spatial = [d for d in labels[1] if d.isdigit()]
        sizes = [(left[labels[1].index(d)], dimensions(one.shape)[labels[3].index(d)]) for d in sorted(spatial)]
        return 2.0 * result * depth * (_window_elements(window[1], sizes) if window else 1)
    contracted = re.search(r'lhs_contracting_dim(?:s=\{|ensions":\[)([\d,"]*)', one.rest)
    return 2.0 * result * math.prod(left[int(d)] for d in re.findall(r"\d+", contracted[1])) if contracted else 0.0


def _window_elements(window: str, sizes: Sequence[tuple[int, int]]) -> float:
    """Elements of a window that meet elements of the operand, on average: not those in the padding or in the gaps that
    dilation makes. `sizes` are those of operand and result along each dimension of the window."""
    fields = dict(part.split("=") for part in window.split() if "=" in part)
    default = {"size": "1", "stride": "1", "pad": "0_0", "lhs_dilate": "1", "rhs_dilate": "1"}
    rows = ([*fields.get(name, "x".join([value] * len(sizes))).split("x")] for name, value in default.items())
    elements = 1.0
    for (operand, result), size, stride, pad, gap, step in zip(sizes, *rows, strict=True):
        starts = (o * int(stride) - int(pad.partition("_")[0]) for o in range(result))
        places = (start + k * int(step) for start in starts for k in range(int(size)))
        met = sum(0 <= place <= (operand - 1) * int(gap) and place % int(gap) == 0 for place in places)
        elements *= met / max(1, result)
    return elements


def _fused_attention_flops(one: Instruction, query: Sequence[int]) -> float:
    """Two matmuls of the scores' elements x the head's dimension; backwards five."""
    found = re.search(r'"intermediate_tensor_shape".*?"dimensions": ?\[([^\]]*)\]', one.rest)
    scores = math.prod(int(n) for n in re.findall(r"\d+", found[1])) if found else 0
    return 2.0 * scores * query[-1] * (5 if "Backward" in one.rest else 2)
