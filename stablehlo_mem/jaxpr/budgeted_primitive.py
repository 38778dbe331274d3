"""The primitive that `jit` binds: a jaxpr that runs within a budget, with the rules of JAX's transformations.

The rules are those of `jax.checkpoint` with nothing saved, except that each resulting jaxpr is bound to this primitive
again: derivatives and batches are planned under the same budget.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax

from stablehlo_mem.ir.bindings import ad, ad_checkpoint, ad_util, batching, checkify, core, lowering, pe
from stablehlo_mem.jaxpr.plan_at_lowering import Settings, lower_planned
from stablehlo_mem.jaxpr.recompute import partial_eval_recomputing

budgeted_p: Any = core.Primitive("budgeted")
budgeted_p.multiple_results = True


def bind(jaxpr: Any, settings: Settings, donated: Sequence[bool], *operands: Any) -> list[Any]:
    """Binds a jaxpr without constants."""
    return budgeted_p.bind(*operands, jaxpr=jaxpr, settings=settings, donated=tuple(donated))


def bind_closed(closed: Any, settings: Settings, *operands: Any, donated: Sequence[bool] | None = None) -> list[Any]:
    """Binds a closed jaxpr, whose constants become operands.

    Args:
        donated: which of `operands` are donated, by default none.
    """
    flags = [False] * len(closed.consts) + list(donated or [False] * len(operands))
    return bind(pe.convert_constvars_jaxpr(closed.jaxpr), settings, flags, *closed.consts, *operands)


@budgeted_p.def_effectful_abstract_eval
def _abstract_eval(*_: Any, jaxpr: Any, **__: Any) -> Any:
    return [v.aval for v in jaxpr.outvars], core.positional_effects(jaxpr)


@budgeted_p.def_impl
def _impl(*operands: Any, jaxpr: Any, **params: Any) -> list[Any]:
    """Outside `jax.jit`. With `jax_debug_nans` or `jax_debug_infs` the jaxpr is evaluated op by op, unplanned."""
    config: Any = jax.config
    if config.jax_debug_nans or config.jax_debug_infs:
        return core.eval_jaxpr(jaxpr, (), *operands)
    return jax.jit(functools.partial(budgeted_p.bind, jaxpr=jaxpr, **params))(*operands)


def _jvp(primals: Any, tangents: Any, *, jaxpr: Any, settings: Settings, donated: tuple[bool, ...]) -> Any:
    """One program of primals and tangents."""
    nonzero = [type(t) is not ad_util.Zero for t in tangents]
    closed, out_nonzero = ad.jvp_jaxpr(pe.close_jaxpr(jaxpr), nonzero, False)
    nonzero_tangents = itertools.compress(tangents, nonzero)
    donated = (*donated, *itertools.compress(donated, nonzero))
    outs = bind_closed(closed, settings, *primals, *nonzero_tangents, donated=donated)
    out_primals, out_tangents = outs[: len(jaxpr.outvars)], iter(outs[len(jaxpr.outvars) :])
    pairs = zip(out_primals, out_nonzero, strict=True)
    return out_primals, [next(out_tangents) if is_nonzero else ad_util.p2tz(primal) for primal, is_nonzero in pairs]


def _partial_eval(trace: Any, *tracers: Any, jaxpr: Any, settings: Settings, donated: tuple[bool, ...]) -> Any:
    """The known part runs now as a program of its own; the staged part recomputes what it needs of it."""
    unknown = [not t.is_known() for t in tracers]
    parts = partial_eval_recomputing(jaxpr, tuple(unknown))
    known_inputs = [t.pval.get_known() for t, u in zip(tracers, unknown, strict=True) if not u]
    outs = _run_known(parts.known, settings, itertools.compress(known_inputs, parts.known_used))
    count = len(outs) - parts.num_residuals
    residuals = [trace.new_instantiated_const(r) for r in outs[count:]]
    staged_inputs = [trace.instantiate_const(t) for t in itertools.compress(tracers, parts.staged_used)]
    inputs = [*residuals, *staged_inputs]
    staged_outs = [pe.JaxprTracer(trace, pe.PartialVal.unknown(v.aval), None) for v in parts.staged.outvars]
    params = {"jaxpr": parts.staged, "settings": settings, "donated": (False,) * len(inputs)}
    effects = core.positional_effects(parts.staged)
    recipe = pe.new_eqn_recipe(trace, inputs, staged_outs, budgeted_p, params, effects, pe.source_info_util.current())
    for out in staged_outs:
        out.recipe = recipe
    known, staged = iter(outs[:count]), iter(staged_outs)
    return [next(staged if is_unknown else known) for is_unknown in parts.out_unknown]


def _run_known(jaxpr: Any, settings: Settings, operands: Any) -> list[Any]:
    if not jaxpr.eqns:
        return core.eval_jaxpr(jaxpr, (), *operands)
    return bind(jaxpr, settings, [False] * len(jaxpr.invars), *operands)


def _partial_eval_custom(saveable: Any, unknown: Any, instantiated: Any, equation: Any) -> Any:
    """Under `jax.checkpoint`, whose policy sees the inner equations: a known and a staged equation, with residuals.

    A residual that is an operand or a result of the known equation already is not returned from it once more.
    """
    jaxpr = equation.params["jaxpr"]
    known, staged, out_unknown, out_instantiated, _ = pe.partial_eval_jaxpr_custom(
        jaxpr, unknown, instantiated, False, False, saveable
    )
    known_in = [v for v, u in zip(equation.invars, unknown, strict=True) if not u]
    known_out = [v for v, u in zip(equation.outvars, out_unknown, strict=True) if not u]
    inner_out, inner_residuals = known.outvars[: len(known_out)], known.outvars[len(known_out) :]
    pairs = [*zip(inner_out, known_out, strict=True), *zip(known.invars, known_in, strict=True)]
    # Inner variables, by identity as literals have no hash, with the variables outside that hold the same value.
    outer = {id(var): outer_var for var, outer_var in pairs if not isinstance(outer_var, core.DropVar)}
    outer |= {id(var): var for var in inner_residuals if not _is_var(var)}
    added = {id(var): var for var in inner_residuals if id(var) not in outer}
    added_out = {key: core.Var(var.aval) for key, var in added.items()}
    residuals = [(outer | added_out)[id(var)] for var in inner_residuals]
    known = known.replace(outvars=[*inner_out, *added.values()])
    staged_in = [*residuals, *itertools.compress(equation.invars, instantiated)]
    staged_out = list(itertools.compress(equation.outvars, out_instantiated))
    known_equation = _replaced(equation, known, known_in, [*known_out, *added_out.values()])
    staged_equation = _replaced(equation, staged, staged_in, staged_out)
    needed = [v for v, inst in zip(equation.invars, instantiated, strict=True) if _is_var(v) and not inst]
    needed += filter(_is_var, residuals)
    return known_equation, staged_equation, out_unknown, out_instantiated, needed


def _is_var(atom: Any) -> bool:
    return isinstance(atom, core.Var)


def _replaced(
    equation: Any, jaxpr: Any, invars: list[Any], outvars: list[Any], donated: Sequence[bool] | None = None
) -> Any:
    """An equation with another jaxpr, of which by default no operand is donated."""
    flags = tuple(donated or [False] * len(invars))
    params = {**equation.params, "jaxpr": jaxpr, "donated": flags}
    effects = core.eqn_effects(jaxpr, invars)
    return pe.new_jaxpr_eqn(invars, outvars, budgeted_p, params, effects, equation.source_info, equation.ctx)


def _transpose(out_cts: Any, *args: Any, jaxpr: Any, settings: Settings, donated: tuple[bool, ...]) -> Any:
    """The backward program, which computes the nonlinear values that it needs."""
    linear = [isinstance(x, ad.GradAccum) for x in args]
    zeros = [type(ct) is ad_util.Zero for ct in out_cts]
    closed, in_zeros, *tree = ad_checkpoint.transpose_jaxpr(pe.close_jaxpr(jaxpr), linear, zeros)
    operands = [x for x, is_linear in zip(args, linear, strict=True) if not is_linear]
    cotangents = [ct for ct, is_zero in zip(out_cts, zeros, strict=True) if not is_zero]
    outs = bind_closed(closed, settings, *operands, *cotangents)
    # From jax 0.11 on the outputs include logs, which the caller expects.
    cotangents_in, logs = jax.tree.unflatten(tree[0], outs) if tree else (outs, None)
    nonzero_cotangents = iter(cotangents_in)
    for x, is_zero in zip(itertools.compress(args, linear), in_zeros, strict=True):
        if not is_zero:
            x.accum(next(nonzero_cotangents))
    return logs


def _batch(axis_data: Any, args: Any, dims: Any, *, jaxpr: Any, settings: Settings, donated: tuple[bool, ...]) -> Any:
    """The program of the whole batch."""
    out_dims = [batching.zero_if_mapped] * len(jaxpr.outvars)
    closed, batched = batching.batch_jaxpr_axes(pe.close_jaxpr(jaxpr), axis_data, dims, out_dims)
    outs = bind_closed(closed, settings, *args, donated=donated)
    return outs, [0 if is_batched else None for is_batched in batched]


def _dce(used_outputs: list[bool], *rest: Any) -> tuple[list[bool], Any]:
    """Drops unused results, and the operands that only they need.

    Args:
        used_outputs: which results are used.
        *rest: from jax 0.12 on which operands are live; and the equation.
    """
    *live, equation = rest
    if not any(used_outputs) and not pe.has_effects(equation, *live):
        return [False] * len(equation.invars), None
    jaxpr, used = pe.dce_jaxpr(equation.params["jaxpr"], used_outputs)
    donated = list(itertools.compress(equation.params["donated"], used))
    invars = list(itertools.compress(equation.invars, used))
    outvars = list(itertools.compress(equation.outvars, used_outputs))
    return used, _replaced(equation, jaxpr, invars, outvars, donated)


def _error_check(*args: Any, jaxpr: Any, settings: Settings, donated: tuple[bool, ...]) -> Any:
    """`checkify`: the error values go through the program. From jax 0.11 on a context comes before them."""
    first = next(i for i, arg in enumerate(args) if isinstance(arg, checkify.Error))
    context, (error, enabled, *operands) = args[:first], args[first:]
    values, tree = jax.tree.flatten(error)
    inputs = [*values, *operands]
    closed, out_tree, _ = checkify.jaxpr_to_checkify_jaxpr(
        *context, pe.close_jaxpr(jaxpr), enabled, tree, *map(core.typeof, inputs)
    )
    outs = bind_closed(closed, settings, *inputs, donated=(*[False] * len(values), *donated))
    return jax.tree.unflatten(out_tree, outs)


def _to_lojax(*operands: Any, jaxpr: Any, settings: Settings, donated: tuple[bool, ...]) -> list[Any]:
    closed = pe.lower_jaxpr2(pe.close_jaxpr(jaxpr))
    pairs = zip(jaxpr.in_aval_qdds, operands, strict=True)
    low_operands = [low for aval, x in pairs for low in (aval.read_loval(x) if aval.has_qdd else aval.lower_val(x))]
    return bind_closed(closed, settings, *low_operands)


ad.primitive_jvps[budgeted_p] = _jvp
ad.fancy_transposes[budgeted_p] = _transpose
pe.custom_partial_eval_rules[budgeted_p] = _partial_eval
pe.partial_eval_jaxpr_custom_rules[budgeted_p] = _partial_eval_custom
pe.dce_rules[budgeted_p] = _dce
batching.fancy_primitive_batchers[budgeted_p] = _batch
checkify.error_checks[budgeted_p] = _error_check
budgeted_p.is_high = lambda *_, jaxpr, **__: jaxpr.is_high
budgeted_p.to_lojax = _to_lojax
# JAX would cache its lowering as a function, whose arguments have no shardings. Plans are cached.
lowering.register_lowering(budgeted_p, lower_planned, cacheable=False)

__all__ = ["bind", "bind_closed", "budgeted_p"]
