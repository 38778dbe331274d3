// recompute-residuals
// No device has all of %w: what the first layer's gradient multiplies with it waits behind the barrier, and is gathered again.
sdy.mesh @mesh = <["x"=2]>
func.func public @main(%x: tensor<64x16xf32>, %w: tensor<16x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}, %v: tensor<64x16xf32>) -> (tensor<64x16xf32>, tensor<64x16xf32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<64x16xf32>, tensor<16x64xf32>) -> tensor<64x64xf32>
  %y = stablehlo.tanh %a : tensor<64x64xf32>
  %b = stablehlo.dot_general %y, %v, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x16xf32>) -> tensor<64x16xf32>
  %c = stablehlo.dot_general %b, %w, contracting_dims = [1] x [0] : (tensor<64x16xf32>, tensor<16x64xf32>) -> tensor<64x64xf32>
  %z = stablehlo.tanh %c : tensor<64x64xf32>
  %d = stablehlo.dot_general %z, %z, contracting_dims = [1] x [1] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %s = stablehlo.reduce(%d init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<64x64xf32>, tensor<f32>) -> tensor<f32>
  %g = stablehlo.dot_general %d, %z, contracting_dims = [0] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %h = stablehlo.dot_general %g, %w, contracting_dims = [1] x [1] : (tensor<64x64xf32>, tensor<16x64xf32>) -> tensor<64x16xf32>
  %gv = stablehlo.dot_general %y, %h, contracting_dims = [0] x [0] : (tensor<64x64xf32>, tensor<64x16xf32>) -> tensor<64x16xf32>
  %e = stablehlo.multiply %gv, %h : tensor<64x16xf32>
  %k = stablehlo.dot_general %e, %w, contracting_dims = [1] x [0] : (tensor<64x16xf32>, tensor<16x64xf32>) -> tensor<64x64xf32>
  %gx = stablehlo.dot_general %k, %w, contracting_dims = [1] x [1] : (tensor<64x64xf32>, tensor<16x64xf32>) -> tensor<64x16xf32>
  return %gv, %gx, %s : tensor<64x16xf32>, tensor<64x16xf32>, tensor<f32>
}

// -----
module {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%arg0: tensor<64x16xf32>, %arg1: tensor<16x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}, %arg2: tensor<64x16xf32>) -> (tensor<64x16xf32>, tensor<64x16xf32>, tensor<f32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<64x16xf32>, tensor<16x64xf32>) -> tensor<64x64xf32>
    %1 = stablehlo.tanh %0 : tensor<64x64xf32>
    %2 = stablehlo.dot_general %1, %arg2, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x16xf32>) -> tensor<64x16xf32>
    %3 = stablehlo.dot_general %2, %arg1, contracting_dims = [1] x [0] : (tensor<64x16xf32>, tensor<16x64xf32>) -> tensor<64x64xf32>
    %4 = stablehlo.tanh %3 : tensor<64x64xf32>
    %5 = stablehlo.dot_general %4, %4, contracting_dims = [1] x [1] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    %6 = stablehlo.reduce(%5 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<64x64xf32>, tensor<f32>) -> tensor<f32>
    %7 = stablehlo.dot_general %5, %4, contracting_dims = [0] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    %8 = stablehlo.dot_general %7, %arg1, contracting_dims = [1] x [1] : (tensor<64x64xf32>, tensor<16x64xf32>) -> tensor<64x16xf32>
    %9 = stablehlo.optimization_barrier {barrier_group = 0 : i64} %arg0 : tensor<64x16xf32>
    %10 = stablehlo.optimization_barrier {barrier_group = 0 : i64} %arg1 : tensor<16x64xf32>
    %11 = stablehlo.optimization_barrier {barrier_group = 0 : i64} %8 : tensor<64x16xf32>
    %12 = stablehlo.dot_general %9, %10, contracting_dims = [1] x [0] : (tensor<64x16xf32>, tensor<16x64xf32>) -> tensor<64x64xf32>
    %13 = stablehlo.tanh %12 : tensor<64x64xf32>
    %14 = stablehlo.dot_general %13, %11, contracting_dims = [0] x [0] : (tensor<64x64xf32>, tensor<64x16xf32>) -> tensor<64x16xf32>
    %15 = stablehlo.multiply %14, %11 : tensor<64x16xf32>
    %16 = stablehlo.dot_general %15, %10, contracting_dims = [1] x [0] : (tensor<64x16xf32>, tensor<16x64xf32>) -> tensor<64x64xf32>
    %17 = stablehlo.dot_general %16, %10, contracting_dims = [1] x [1] : (tensor<64x64xf32>, tensor<16x64xf32>) -> tensor<64x16xf32>
    return %14, %17, %6 : tensor<64x16xf32>, tensor<64x16xf32>, tensor<f32>
  }
}
