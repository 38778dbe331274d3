// rewrite narrow
// The start is in bounds in normal form; the iota counts from it.
func.func public @main(%q: tensor<64x8xf32>, %k: tensor<8x32xf32>, %i: tensor<i32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %q, %k, contracting_dims = [1] x [0] : (tensor<64x8xf32>, tensor<8x32xf32>) -> tensor<64x32xf32>
  %1 = stablehlo.iota dim = 0 : tensor<64x32xf32>
  %2 = stablehlo.multiply %0, %1 : tensor<64x32xf32>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x32xf32>, tensor<f32>) -> tensor<64xf32>
  %y = stablehlo.dynamic_slice %3, %i, sizes = [4] : (tensor<64xf32>, tensor<i32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<64x8xf32>, %arg1: tensor<8x32xf32>, %arg2: tensor<i32>) -> tensor<4xf32> {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<60> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.clamp %c_0, %arg2, %c_1 : tensor<i32>
    %1 = stablehlo.dynamic_slice %arg0, %0, %c_0, sizes = [4, 8] : (tensor<64x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
    %2 = stablehlo.dot_general %1, %arg1, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x32xf32>) -> tensor<4x32xf32>
    %3 = stablehlo.iota dim = 0 : tensor<4x32xi32>
    %4 = stablehlo.multiply %0, %c : tensor<i32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<i32>) -> tensor<4x32xi32>
    %6 = stablehlo.add %3, %5 : tensor<4x32xi32>
    %7 = stablehlo.convert %6 : (tensor<4x32xi32>) -> tensor<4x32xf32>
    %8 = stablehlo.multiply %2, %7 : tensor<4x32xf32>
    %9 = stablehlo.reduce(%8 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<4x32xf32>, tensor<f32>) -> tensor<4xf32>
    return %9 : tensor<4xf32>
  }
}
