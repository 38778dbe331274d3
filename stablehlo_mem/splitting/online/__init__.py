"""Online reductions: a softmax, and the matmul after it, in one loop over the softmax's own axis, as in FlashAttention.

Written as a program, softmax(x) @ v needs three loops over the keys, each of which computes the scores again: one for
the maximum m of each row, one for the sum l of exp(x - m), one for the sum of exp(x - m) / l * v. They become one:
- *running maximum*: exp takes the maximum of the chunks so far, so that it never overflows;
- *rescaling*: when the maximum grows, what was accumulated is multiplied by exp(m before - m now);
- *deferred term*: the division by l, which is not known yet, is left out, and done once to the accumulated result.

m and l are *row statistics*: values without the axis, one number a row. A statistic is *pending* in a loop if it is
not finished when the loop begins. `loop_scheduling` calls `online_reductions`, that asks `deferred_terms` how each
value depends on pending statistics, and that asks `running_max` which of them follow a maximum. `rescaling` emits.

Sources: Milakov & Gimelshein, "Online normalizer calculation for softmax", 2018 (running maximum, rescaled sum);
Rabe & Staats, "Self-attention does not need O(n^2) memory", 2021 (the same for softmax(x) @ v, in chunks);
Dao et al., "FlashAttention", 2022 (the division by l at the end; and the backward pass, two loops here).
"""
