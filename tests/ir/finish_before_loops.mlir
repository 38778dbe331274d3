// finish-before-loops
// Nothing waits for the gradient of %w, which reads %large last: without the barrier it may run after the loop.
sdy.mesh @mesh = <["data"=2]>
func.func public @main(%x: tensor<16x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}, %w: tensor<4x64xf32>) -> (tensor<16x4xf32>, tensor<4x64xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %scores = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<16x4xf32>, tensor<4x64xf32>) -> tensor<16x64xf32>
  %large = stablehlo.tanh %scores : tensor<16x64xf32>
  %gw = stablehlo.dot_general %x, %large, contracting_dims = [0] x [0] : (tensor<16x4xf32>, tensor<16x64xf32>) -> tensor<4x64xf32>
  %sum = stablehlo.add %w, %gw : tensor<4x64xf32>
  %gx = stablehlo.dot_general %large, %w, contracting_dims = [1] x [1] : (tensor<16x64xf32>, tensor<4x64xf32>) -> tensor<16x4xf32>
  %0:2 = stablehlo.while(%i = %zero, %d = %gx) : tensor<i32>, tensor<16x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %1 = stablehlo.sine %d : tensor<16x4xf32>
    %2 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %2, %1 : tensor<i32>, tensor<16x4xf32>
  }
  return %0#1, %sum : tensor<16x4xf32>, tensor<4x64xf32>
}

// -----
module {
  sdy.mesh @mesh = <["data"=2]>
  func.func public @main(%arg0: tensor<16x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}, %arg1: tensor<4x64xf32>) -> (tensor<16x4xf32>, tensor<4x64xf32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %c_1 = stablehlo.constant dense<3> : tensor<i32>
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<16x4xf32>, tensor<4x64xf32>) -> tensor<16x64xf32>
    %1 = stablehlo.tanh %0 : tensor<16x64xf32>
    %2 = stablehlo.dot_general %arg0, %1, contracting_dims = [0] x [0] : (tensor<16x4xf32>, tensor<16x64xf32>) -> tensor<4x64xf32>
    %3 = stablehlo.add %arg1, %2 : tensor<4x64xf32>
    %4 = stablehlo.dot_general %1, %arg1, contracting_dims = [1] x [1] : (tensor<16x64xf32>, tensor<4x64xf32>) -> tensor<16x4xf32>
    %5:2 = stablehlo.optimization_barrier %3, %4 : tensor<4x64xf32>, tensor<16x4xf32>
    %6:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %5#1) : tensor<i32>, tensor<16x4xf32>
    cond {
      %7 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %7 : tensor<i1>
    } do {
      %7 = stablehlo.sine %iterArg_2 : tensor<16x4xf32>
      %8 = stablehlo.add %iterArg, %c_0 : tensor<i32>
      stablehlo.return %8, %7 : tensor<i32>, tensor<16x4xf32>
    }
    return %6#1, %5#0 : tensor<16x4xf32>, tensor<4x64xf32>
  }
}
