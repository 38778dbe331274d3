// compute-where-read
// A kernel matrix that is multiplied by a vector from both sides: two sums, each computes it.
func.func public @main(%x: tensor<4096x2xf32>, %y: tensor<4096x2xf32>, %v: tensor<4096xf32>) -> (tensor<4096xf32>, tensor<4096xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %x, dims = [0, 2] : (tensor<4096x2xf32>) -> tensor<4096x4096x2xf32>
  %1 = stablehlo.broadcast_in_dim %y, dims = [1, 2] : (tensor<4096x2xf32>) -> tensor<4096x4096x2xf32>
  %2 = stablehlo.multiply %0, %1 : tensor<4096x4096x2xf32>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<4096x4096x2xf32>, tensor<f32>) -> tensor<4096x4096xf32>
  %k = stablehlo.exponential %3 : tensor<4096x4096xf32>
  %r = stablehlo.dot_general %k, %v, contracting_dims = [1] x [0] : (tensor<4096x4096xf32>, tensor<4096xf32>) -> tensor<4096xf32>
  %s = stablehlo.dot_general %k, %r, contracting_dims = [0] x [0] : (tensor<4096x4096xf32>, tensor<4096xf32>) -> tensor<4096xf32>
  return %r, %s : tensor<4096xf32>, tensor<4096xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<4096x2xf32>, %arg1: tensor<4096x2xf32>, %arg2: tensor<4096xf32>) -> (tensor<4096xf32>, tensor<4096xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %arg0, dims = [0, 2] : (tensor<4096x2xf32>) -> tensor<4096x4096x2xf32>
    %1 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2] : (tensor<4096x2xf32>) -> tensor<4096x4096x2xf32>
    %2 = stablehlo.multiply %0, %1 : tensor<4096x4096x2xf32>
    %3 = stablehlo.reduce(%2 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<4096x4096x2xf32>, tensor<f32>) -> tensor<4096x4096xf32>
    %4 = stablehlo.exponential %3 : tensor<4096x4096xf32>
    %5 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<4096xf32>) -> tensor<4096x4096xf32>
    %6 = stablehlo.multiply %4, %5 : tensor<4096x4096xf32>
    %7 = stablehlo.reduce(%6 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
    %8 = stablehlo.optimization_barrier %arg1 : tensor<4096x2xf32>
    %9 = stablehlo.optimization_barrier %arg0 : tensor<4096x2xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 2] : (tensor<4096x2xf32>) -> tensor<4096x4096x2xf32>
    %11 = stablehlo.broadcast_in_dim %8, dims = [1, 2] : (tensor<4096x2xf32>) -> tensor<4096x4096x2xf32>
    %12 = stablehlo.multiply %10, %11 : tensor<4096x4096x2xf32>
    %13 = stablehlo.reduce(%12 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<4096x4096x2xf32>, tensor<f32>) -> tensor<4096x4096xf32>
    %14 = stablehlo.exponential %13 : tensor<4096x4096xf32>
    %15 = stablehlo.broadcast_in_dim %7, dims = [0] : (tensor<4096xf32>) -> tensor<4096x4096xf32>
    %16 = stablehlo.multiply %14, %15 : tensor<4096x4096xf32>
    %17 = stablehlo.reduce(%16 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
    return %7, %17 : tensor<4096xf32>, tensor<4096xf32>
  }
}
