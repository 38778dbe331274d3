"""Splits: a region of ops becomes loops over chunks of one axis.

From an axis to the emitted loops:
1. `axis` grows the axis of a value and dimension: which dimensions of which values are split together.
2. `loop_scheduling` makes it a `loop_schedule`: which ops run in which loop, and what the loops leave. `online` lets
   reductions run in the loop of what they depend on; `saved_values` says what loops should save for later ones.
3. `chunk_cost` says what the loops cost for each number of elements a step, `loop_sizes` what each saves too;
   `candidates` proposes them at a peak, with those of `like_places`: other layers, where they are unrolled. Both ask
   `loops_of_seed` for 1 and 2.
4. `split_step` holds the split that was chosen as data, and repeats 1 and 2 for it where it must.
5. `emit_loops` builds the loops, one `stablehlo.while` each; `scan_carries` is what cumulative ops carry in them, and
   `window_emitter` a step in a window around its chunk.
"""
