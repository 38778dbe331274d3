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
      %c_1 = stablehlo.constant dense<0> : tensor<i32>
      %1 = stablehlo.dynamic_slice %arg0, %iterArg, %c_1, %c_1, sizes = [1, 5, 4] : (tensor<3x5x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x5x4xf32>
      %c_2 = stablehlo.constant dense<0> : tensor<i32>
      %2 = stablehlo.dynamic_slice %arg1, %iterArg, %c_2, %c_2, sizes = [1, 6, 4] : (tensor<3x6x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x6x4xf32>
      %3 = stablehlo.dot_general %1, %2, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<1x5x4xf32>, tensor<1x6x4xf32>) -> tensor<1x5x6xf32>
      %4 = stablehlo.exponential %3 : tensor<1x5x6xf32>
      %c_3 = stablehlo.constant dense<0> : tensor<i32>
      %5 = stablehlo.dynamic_slice %arg2, %iterArg, %c_3, %c_3, sizes = [1, 6, 4] : (tensor<3x6x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x6x4xf32>
      %6 = stablehlo.dot_general %4, %5, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<1x5x6xf32>, tensor<1x6x4xf32>) -> tensor<1x5x4xf32>
      %c_4 = stablehlo.constant dense<0> : tensor<i32>
      %7 = stablehlo.dynamic_update_slice %iterArg_0, %6, %iterArg, %c_4, %c_4 : (tensor<3x5x4xf32>, tensor<1x5x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x5x4xf32>
      %c_5 = stablehlo.constant dense<1> : tensor<i32>
      %8 = stablehlo.add %iterArg, %c_5 : tensor<i32>
      stablehlo.return %8, %7 : tensor<i32>, tensor<3x5x4xf32>
    }
    return %0#1 : tensor<3x5x4xf32>
  }
}
