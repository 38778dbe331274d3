"""block_cse: equal ops of one block become one; what a body repeats of the block around it stays."""

from stablehlo_mem.ir.bindings import parse_module, walk_operations
from stablehlo_mem.ir.block_cse import block_cse

LOOP = """
func.func public @main(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %six = stablehlo.constant dense<6> : tensor<i32>
  %init = stablehlo.constant dense<0.0> : tensor<f32>
  %e = stablehlo.exponential %x : tensor<8xf32>
  %e1 = stablehlo.exponential %x : tensor<8xf32>
  %0:2 = stablehlo.while(%i = %zero, %y = %e) : tensor<i32>, tensor<8xf32>
  cond {
    %c = stablehlo.compare LT, %i, %six : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %e2 = stablehlo.exponential %x : tensor<8xf32>
    %e3 = stablehlo.exponential %x : tensor<8xf32>
    %s = stablehlo.reduce(%e2 init: %init) applies stablehlo.add across dimensions = [0]
      : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
    %s1 = stablehlo.reduce(%e3 init: %init) applies stablehlo.add across dimensions = [0]
      : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
    %t = stablehlo.multiply %s, %s1 : tensor<f32>
    %b = stablehlo.broadcast_in_dim %t, dims = [] : (tensor<f32>) -> tensor<8xf32>
    %1 = stablehlo.add %y, %b : tensor<8xf32>
    %2 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %2, %1 : tensor<i32>, tensor<8xf32>
  }
  return %0#1, %e1 : tensor<8xf32>, tensor<8xf32>
}
"""


def test_merges_within_a_block_only():
    module = parse_module(LOOP)
    block_cse(module)
    assert module.operation.verify()
    ops = list(walk_operations(module.operation))
    names = [op.name for op in ops]
    assert names.count("stablehlo.exponential") == 2
    assert names.count("stablehlo.reduce") == 1
    assert not any("stablehlo_mem_block" in op.attributes for op in ops)
    inside = [op.parent.name for op in ops if op.name == "stablehlo.exponential"]
    assert inside == ["func.func", "stablehlo.while"]
