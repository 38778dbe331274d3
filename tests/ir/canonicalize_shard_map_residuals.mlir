// canonicalize
// The tanh lies along its rows, as %x does; the weights get the devices in a new dimension; the constant is computed
// where it is read, and what nobody reads is not returned.
sdy.mesh @mesh = <["x"=2]>
func.func public @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32>, %g: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %0:4 = sdy.manual_computation(%x, %w) in_shardings=[<@mesh, [{"x"}, {}]>, <@mesh, [{}, {}]>] out_shardings=[<@mesh, [{}, {"x"}]>, <@mesh, [{"x"}, {}]>, <@mesh, [{"x"}]>, <@mesh, [{"x"}, {}]>] manual_axes={"x"} (%a: tensor<2x6xf32>, %b: tensor<6x6xf32>) {
    %t = stablehlo.tanh %a : tensor<2x6xf32>
    %rows = stablehlo.transpose %t, dims = [1, 0] : (tensor<2x6xf32>) -> tensor<6x2xf32>
    %e = stablehlo.exponential %b : tensor<6x6xf32>
    %c = stablehlo.constant dense<2.0> : tensor<1xf32>
    %s = stablehlo.sqrt %c : tensor<1xf32>
    sdy.return %rows, %e, %s, %a : tensor<6x2xf32>, tensor<6x6xf32>, tensor<1xf32>, tensor<2x6xf32>
  } : (tensor<4x6xf32>, tensor<6x6xf32>) -> (tensor<6x4xf32>, tensor<12x6xf32>, tensor<2xf32>, tensor<4x6xf32>)
  %1 = sdy.manual_computation(%g, %0#0, %0#1, %0#2) in_shardings=[<@mesh, [{"x"}, {}]>, <@mesh, [{}, {"x"}]>, <@mesh, [{"x"}, {}]>, <@mesh, [{"x"}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%a: tensor<2x6xf32>, %t: tensor<6x2xf32>, %e: tensor<6x6xf32>, %s: tensor<1xf32>) {
    %y = stablehlo.dot_general %a, %e, contracting_dims = [1] x [1] : (tensor<2x6xf32>, tensor<6x6xf32>) -> tensor<2x6xf32>
    %u = stablehlo.transpose %t, dims = [1, 0] : (tensor<6x2xf32>) -> tensor<2x6xf32>
    %f = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<1xf32>) -> tensor<2x6xf32>
    %m = stablehlo.multiply %y, %u : tensor<2x6xf32>
    %z = stablehlo.multiply %m, %f : tensor<2x6xf32>
    sdy.return %z : tensor<2x6xf32>
  } : (tensor<4x6xf32>, tensor<6x4xf32>, tensor<12x6xf32>, tensor<2xf32>) -> tensor<4x6xf32>
  return %1 : tensor<4x6xf32>
}

// -----
module {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%arg0: tensor<4x6xf32>, %arg1: tensor<6x6xf32>, %arg2: tensor<4x6xf32>) -> tensor<4x6xf32> {
    %0:2 = sdy.manual_computation(%arg0, %arg1) in_shardings=[<@mesh, [{"x"}, {}]>, <@mesh, [{}, {}]>] out_shardings=[<@mesh, [{}, {"x"}]>, <@mesh, [{"x"}, {}, {}]>] manual_axes={"x"} (%arg3: tensor<2x6xf32>, %arg4: tensor<6x6xf32>) {
      %cst = stablehlo.constant dense<2.000000e+00> : tensor<1xf32>
      %2 = stablehlo.tanh %arg3 : tensor<2x6xf32>
      %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<2x6xf32>) -> tensor<6x2xf32>
      %4 = stablehlo.exponential %arg4 : tensor<6x6xf32>
      %5 = stablehlo.sqrt %cst : tensor<1xf32>
      %6 = stablehlo.reshape %4 : (tensor<6x6xf32>) -> tensor<1x6x6xf32>
      sdy.return %3, %6 : tensor<6x2xf32>, tensor<1x6x6xf32>
    } : (tensor<4x6xf32>, tensor<6x6xf32>) -> (tensor<6x4xf32>, tensor<2x6x6xf32>)
    %1 = sdy.manual_computation(%arg2, %0#0, %0#1) in_shardings=[<@mesh, [{"x"}, {}]>, <@mesh, [{}, {"x"}]>, <@mesh, [{"x"}, {}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%arg3: tensor<2x6xf32>, %arg4: tensor<6x2xf32>, %arg5: tensor<1x6x6xf32>) {
      %2 = stablehlo.reshape %arg5 : (tensor<1x6x6xf32>) -> tensor<6x6xf32>
      %cst = stablehlo.constant dense<2.000000e+00> : tensor<1xf32>
      %3 = stablehlo.sqrt %cst : tensor<1xf32>
      %4 = stablehlo.dot_general %arg3, %2, contracting_dims = [1] x [1] : (tensor<2x6xf32>, tensor<6x6xf32>) -> tensor<2x6xf32>
      %5 = stablehlo.transpose %arg4, dims = [1, 0] : (tensor<6x2xf32>) -> tensor<2x6xf32>
      %6 = stablehlo.broadcast_in_dim %3, dims = [1] : (tensor<1xf32>) -> tensor<2x6xf32>
      %7 = stablehlo.multiply %4, %5 : tensor<2x6xf32>
      %8 = stablehlo.multiply %7, %6 : tensor<2x6xf32>
      sdy.return %8 : tensor<2x6xf32>
    } : (tensor<4x6xf32>, tensor<6x4xf32>, tensor<2x6x6xf32>) -> tensor<4x6xf32>
    return %1 : tensor<4x6xf32>
  }
}
