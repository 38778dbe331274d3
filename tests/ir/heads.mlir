// split exponential along 0 by 1
// A batch dimension of both dots.
func.func public @main(%q: tensor<3x5x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x4xf32>) -> tensor<3x5x4xf32> {
  %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<3x5x4xf32>, tensor<3x6x4xf32>) -> tensor<3x5x6xf32>
  %e = stablehlo.exponential %s : tensor<3x5x6xf32>
  %y = stablehlo.dot_general %e, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<3x5x6xf32>, tensor<3x6x4xf32>) -> tensor<3x5x4xf32>
  return %y : tensor<3x5x4xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<3x5x4xf32>, %arg1: tensor<3x6x4xf32>, %arg2: tensor<3x6x4xf32>) -> tensor<3x5x4xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<3x5x4xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %cst) : tensor<i32>, tensor<3x5x4xf32>
    cond {
      %c_1 = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_1 = stablehlo.constant dense<1> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_1 : tensor<i32>
      %c_2 = stablehlo.constant dense<0> : tensor<i32>
      %2 = stablehlo.dynamic_slice %arg0, %1, %c_2, %c_2, sizes = [1, 5, 4] : (tensor<3x5x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x5x4xf32>
      %c_3 = stablehlo.constant dense<0> : tensor<i32>
      %3 = stablehlo.dynamic_slice %arg1, %1, %c_3, %c_3, sizes = [1, 6, 4] : (tensor<3x6x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x6x4xf32>
      %4 = stablehlo.dot_general %2, %3, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<1x5x4xf32>, tensor<1x6x4xf32>) -> tensor<1x5x6xf32>
      %5 = stablehlo.exponential %4 : tensor<1x5x6xf32>
      %c_4 = stablehlo.constant dense<0> : tensor<i32>
      %6 = stablehlo.dynamic_slice %arg2, %1, %c_4, %c_4, sizes = [1, 6, 4] : (tensor<3x6x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x6x4xf32>
      %7 = stablehlo.dot_general %5, %6, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<1x5x6xf32>, tensor<1x6x4xf32>) -> tensor<1x5x4xf32>
      %c_5 = stablehlo.constant dense<0> : tensor<i32>
      %8 = stablehlo.dynamic_update_slice %iterArg_0, %7, %1, %c_5, %c_5 : (tensor<3x5x4xf32>, tensor<1x5x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x5x4xf32>
      %c_6 = stablehlo.constant dense<1> : tensor<i32>
      %9 = stablehlo.add %iterArg, %c_6 : tensor<i32>
      stablehlo.return %9, %8 : tensor<i32>, tensor<3x5x4xf32>
    }
    return %0#1 : tensor<3x5x4xf32>
  }
}
