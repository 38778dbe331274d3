"""The primitive that `jit` binds: a jaxpr that runs within the budget, and so do its derivatives and batches.

The rules are those of `jax.checkpoint` where nothing is saved, but that each piece is bound to the primitive again.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax

from stablehlo_mem.ir.bindings import ad, ad_checkpoint, ad_util, batching, checkify, core, lowering, pe
from stablehlo_mem.jaxpr.plan_at_lowering import Settings, lower_planned
from stablehlo_mem.jaxpr.recompute import split

budgeted_p: Any = core.Primitive("budgeted")
budgeted_p.multiple_results = True


def bind(jaxpr: Any, settings: Settings, donated: Sequence[bool], *operands: Any) -> list[Any]:
    """Runs a jaxpr without constants within the budget."""
    return budgeted_p.bind(*operands, jaxpr=jaxpr, settings=settings, donated=tuple(donated))


def bind_closed(closed: Any, settings: Settings, *operands: Any) -> list[Any]:
    """The same for a jaxpr with constants, which become operands; nothing is donated."""
    jaxpr = pe.convert_constvars_jaxpr(closed.jaxpr)
    return bind(jaxpr, settings, [False] * len(jaxpr.invars), *closed.consts, *operands)


@budgeted_p.def_effectful_abstract_eval
def _abstract_eval(*_: Any, jaxpr: Any, **__: Any) -> Any:
    return [v.aval for v in jaxpr.outvars], core.positional_effects(jaxpr)


@budgeted_p.def_impl
def _impl(*operands: Any, jaxpr: Any, **params: Any) -> list[Any]:
    """Outside `jax.jit`: where NaNs are looked for op by op, the program as it is written."""
    config: Any = jax.config
    if config.jax_debug_nans or config.jax_debug_infs:
        return core.eval_jaxpr(jaxpr, (), *operands)
    return jax.jit(functools.partial(budgeted_p.bind, jaxpr=jaxpr, **params))(*operands)


def _jvp(primals: Any, tangents: Any, *, jaxpr: Any, settings: Settings, donated: tuple[bool, ...]) -> Any:
    """One program of primals and tangents."""
    nonzero = [type(t) is not ad_util.Zero for t in tangents]
    closed, out_nonzero = ad.jvp_jaxpr(pe.close_jaxpr(jaxpr), nonzero, False)
    given = list(itertools.compress(tangents, nonzero))
    differentiated = pe.convert_constvars_jaxpr(closed.jaxpr)
    donated = (*[False] * len(closed.consts), *donated, *itertools.compress(donated, nonzero))
    outs = bind(differentiated, settings, donated, *closed.consts, *primals, *given)
    out_primals, rest = outs[: len(jaxpr.outvars)], iter(outs[len(jaxpr.outvars) :])
    pairs = zip(out_primals, out_nonzero, strict=True)
    return out_primals, [next(rest) if is_nonzero else ad_util.p2tz(primal) for primal, is_nonzero in pairs]


def _partial_eval(trace: Any, *tracers: Any, jaxpr: Any, settings: Settings, donated: tuple[bool, ...]) -> Any:
    """What is known runs now, in a program of its own; the rest computes again what it needs of it."""
    unknown = [not t.is_known() for t in tracers]
    parts = split(jaxpr, tuple(unknown))
    known_inputs = [t.pval.get_known() for t, u in zip(tracers, unknown, strict=True) if not u]
    outs = _run_known(parts.known, settings, itertools.compress(known_inputs, parts.known_used))
    known_outs = outs[: len(outs) - parts.residuals]
    residuals = [trace.new_instantiated_const(r) for r in outs[len(outs) - parts.residuals :]]
    staged_inputs = [trace.instantiate_const(t) for t in itertools.compress(tracers, parts.staged_used)]
    inputs = [*residuals, *staged_inputs]
    results = [pe.JaxprTracer(trace, pe.PartialVal.unknown(v.aval), None) for v in parts.staged.outvars]
    params = {"jaxpr": parts.staged, "settings": settings, "donated": (False,) * len(inputs)}
    effects = core.positional_effects(parts.staged)
    recipe = pe.new_eqn_recipe(trace, inputs, results, budgeted_p, params, effects, pe.source_info_util.current())
    for result in results:
        result.recipe = recipe
    from_known, from_staged = iter(known_outs), iter(results)
    return [next(from_staged if is_unknown else from_known) for is_unknown in parts.out_unknown]


def _run_known(jaxpr: Any, settings: Settings, operands: Any) -> list[Any]:
    if not jaxpr.eqns:
        return core.eval_jaxpr(jaxpr, (), *operands)
    return bind(jaxpr, settings, [False] * len(jaxpr.invars), *operands)


def _partial_eval_custom(saveable: Any, unknown: Any, instantiated: Any, equation: Any) -> Any:
    """Under `jax.checkpoint`, whose policy looks inside: two equations, and what the second needs of the first.

    A residual that is an operand or a result of the first is not handed out once more.
    """
    jaxpr = equation.params["jaxpr"]
    known, staged, out_unknown, out_instantiated, _ = pe.partial_eval_jaxpr_custom(
        jaxpr, unknown, instantiated, False, False, saveable
    )
    known_in = [v for v, u in zip(equation.invars, unknown, strict=True) if not u]
    known_out = [v for v, u in zip(equation.outvars, out_unknown, strict=True) if not u]
    handed, saved = known.outvars[: len(known_out)], known.outvars[len(known_out) :]
    pairs = [*zip(handed, known_out, strict=True), *zip(known.invars, known_in, strict=True)]
    there = {id(var): outer for var, outer in pairs if not isinstance(outer, core.DropVar)}
    there |= {id(var): var for var in saved if not _is_var(var)}
    made = {id(var): core.Var(var.aval) for var in saved if id(var) not in there}
    residuals = [there[id(v)] if id(v) in there else made[id(v)] for v in saved]
    known = known.replace(outvars=[*handed, *{id(v): v for v in saved if id(v) in made}.values()])
    staged_in = [*residuals, *itertools.compress(equation.invars, instantiated)]
    first = _part(equation, known, known_in, [*known_out, *made.values()])
    second = _part(equation, staged, staged_in, list(itertools.compress(equation.outvars, out_instantiated)))
    needed = [v for v, inst in zip(equation.invars, instantiated, strict=True) if _is_var(v) and not inst]
    return first, second, out_unknown, out_instantiated, needed + list(filter(_is_var, residuals))


def _is_var(atom: Any) -> bool:
    return isinstance(atom, core.Var)


def _part(equation: Any, jaxpr: Any, invars: list[Any], outvars: list[Any]) -> Any:
    params = {**equation.params, "jaxpr": jaxpr, "donated": (False,) * len(invars)}
    effects = core.eqn_effects(jaxpr, invars)
    return pe.new_jaxpr_eqn(invars, outvars, budgeted_p, params, effects, equation.source_info, equation.ctx)


def _transpose(out_cts: Any, *args: Any, jaxpr: Any, settings: Settings, donated: tuple[bool, ...]) -> Any:
    """The backward program: what is not linear is computed in it."""
    linear = [isinstance(x, ad.GradAccum) for x in args]
    zeros = [type(ct) is ad_util.Zero for ct in out_cts]
    closed, in_zeros, *tree = ad_checkpoint.transpose_jaxpr(pe.close_jaxpr(jaxpr), linear, zeros)
    operands = [x for x, is_linear in zip(args, linear, strict=True) if not is_linear]
    cotangents = [ct for ct, is_zero in zip(out_cts, zeros, strict=True) if not is_zero]
    outs = bind_closed(closed, settings, *operands, *cotangents)
    # From jax 0.11 on there are also logs, which the caller takes.
    cotangents_in, logs = jax.tree.unflatten(tree[0], outs) if tree else (outs, None)
    found = iter(cotangents_in)
    for x, is_zero in zip(itertools.compress(args, linear), in_zeros, strict=True):
        if not is_zero:
            x.accum(next(found))
    return logs


def _batch(axis_data: Any, args: Any, dims: Any, *, jaxpr: Any, settings: Settings, donated: tuple[bool, ...]) -> Any:
    """The program of the whole batch."""
    where = [batching.zero_if_mapped] * len(jaxpr.outvars)
    closed, batched = batching.batch_jaxpr_axes(pe.close_jaxpr(jaxpr), axis_data, dims, where)
    donated = (*[False] * len(closed.consts), *donated)
    outs = bind(pe.convert_constvars_jaxpr(closed.jaxpr), settings, donated, *closed.consts, *args)
    return outs, [0 if is_batched else None for is_batched in batched]


def _dce(used_outputs: list[bool], equation: Any) -> tuple[list[bool], Any]:
    """Only what is needed is an argument of the program."""
    if not any(used_outputs) and not pe.has_effects(equation):
        return [False] * len(equation.invars), None
    jaxpr, used = pe.dce_jaxpr(equation.params["jaxpr"], used_outputs)
    donated = tuple(itertools.compress(equation.params["donated"], used))
    invars = list(itertools.compress(equation.invars, used))
    outvars = list(itertools.compress(equation.outvars, used_outputs))
    params = {**equation.params, "jaxpr": jaxpr, "donated": donated}
    effects = core.eqn_effects(jaxpr, invars)
    return used, pe.new_jaxpr_eqn(invars, outvars, budgeted_p, params, effects, equation.source_info, equation.ctx)


def _error_check(*args: Any, jaxpr: Any, settings: Settings, donated: tuple[bool, ...]) -> Any:
    """`checkify` around: the errors go through the program. From jax 0.11 on a context comes first."""
    first = next(i for i, arg in enumerate(args) if isinstance(arg, checkify.Error))
    context, (error, enabled, *operands) = args[:first], args[first:]
    values, tree = jax.tree.flatten(error)
    given = [*values, *operands]
    closed, out_tree, _ = checkify.jaxpr_to_checkify_jaxpr(
        *context, pe.close_jaxpr(jaxpr), enabled, tree, *map(core.typeof, given)
    )
    donated = (*[False] * (len(closed.consts) + len(values)), *donated)
    outs = bind(pe.convert_constvars_jaxpr(closed.jaxpr), settings, donated, *closed.consts, *given)
    return jax.tree.unflatten(out_tree, outs)


def _is_high(*_: Any, jaxpr: Any, **__: Any) -> bool:
    return jaxpr.is_high


def _to_lojax(*operands: Any, jaxpr: Any, settings: Settings, donated: tuple[bool, ...]) -> list[Any]:
    closed = pe.lower_jaxpr2(pe.close_jaxpr(jaxpr))
    pairs = zip(jaxpr.in_aval_qdds, operands, strict=True)
    given = [low for aval, x in pairs for low in (aval.read_loval(x) if aval.has_qdd else aval.lower_val(x))]
    return bind_closed(closed, settings, *given)


def _lower(ctx: Any, *operands: Any, **params: Any) -> Any:
    return lower_planned(ctx, operands, **params)


def _register() -> None:
    ad.primitive_jvps[budgeted_p] = _jvp
    ad.fancy_transposes[budgeted_p] = _transpose
    pe.custom_partial_eval_rules[budgeted_p] = _partial_eval
    pe.partial_eval_jaxpr_custom_rules[budgeted_p] = _partial_eval_custom
    pe.dce_rules[budgeted_p] = _dce
    batching.fancy_primitive_batchers[budgeted_p] = _batch
    checkify.error_checks[budgeted_p] = _error_check
    budgeted_p.is_high = _is_high
    budgeted_p.to_lojax = _to_lojax
    lowering.register_lowering(budgeted_p, _lower)


_register()

__all__ = ["bind", "bind_closed", "budgeted_p"]
