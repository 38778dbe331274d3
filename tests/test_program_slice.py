"""The part of a program that computes some values."""

from stablehlo_mem.ir.bindings import parse_module, walk_operations
from stablehlo_mem.ir.graph import main_function
from stablehlo_mem.ir.program_slice import program_slice

PROGRAM = """
sdy.mesh @mesh = <["x"=2]>
func.func private @double(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %a : tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func public @main(
    %unused: tensor<4xf32>, %x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> (tensor<4xf32>) {
  %n = stablehlo.constant dense<3> : tensor<i32>
  %0 = call @double(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = stablehlo.negate %x : tensor<4xf32>
  %2:2 = stablehlo.while(%i = %n, %c = %0) : tensor<i32>, tensor<4xf32>
  cond {
    %p = stablehlo.compare GT, %i, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %s = stablehlo.sine %c : tensor<4xf32>
    %m = stablehlo.multiply %s, %1 : tensor<4xf32>
    stablehlo.return %i, %m : tensor<i32>, tensor<4xf32>
  }
  return %2#1 : tensor<4xf32>
}
"""
HEADER = """module {
  sdy.mesh @mesh = <["x"=2]>
"""
DOUBLE = """  func.func private @double(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
"""
SIGNATURE = '(%arg0: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<4xf32> {\n'


def sliced(name: str) -> str:
    """The slice of the result of the only op of a name."""
    module = parse_module(PROGRAM)
    (op,) = [op for op in walk_operations(main_function(module)) if op.name == name]
    return str(program_slice(module, [op.results[0]]))


def test_what_computes_it_with_attributes_of_arguments():
    body = "    %0 = stablehlo.negate %arg0 : tensor<4xf32>\n    return %0 : tensor<4xf32>\n  }\n}\n"
    assert sliced("stablehlo.negate") == f"{HEADER}  func.func public @main{SIGNATURE}{body}"


def test_in_a_loop_what_the_carry_begins_with_and_the_function_that_computes_it():
    body = """    %0 = call @double(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = stablehlo.sine %0 : tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}
"""
    assert sliced("stablehlo.sine") == f"{HEADER}{DOUBLE}  func.func public @main{SIGNATURE}{body}"


def test_a_loop_as_a_whole_with_what_its_body_captures():
    text = sliced("stablehlo.while")
    assert "stablehlo.negate %arg0" in text
    assert text.count("stablehlo.while") == 1
    assert "%unused" not in text
