// split add along 0 by 4
// A part of what is needed whole is read in the step: before the loop it would be a copy.
func.func public @main(%x: tensor<12xf32>, %t: tensor<2x6xf32>) -> tensor<12xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.slice %t [1:2, 0:6] : (tensor<2x6xf32>) -> tensor<1x6xf32>
  %1 = stablehlo.reshape %0 : (tensor<1x6xf32>) -> tensor<6xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [1] : (tensor<6xf32>) -> tensor<12x6xf32>
  %3 = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<12xf32>) -> tensor<12x6xf32>
  %4 = stablehlo.add %2, %3 : tensor<12x6xf32>
  %5 = stablehlo.exponential %4 : tensor<12x6xf32>
  %6 = stablehlo.reduce(%5 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<12x6xf32>, tensor<f32>) -> tensor<12xf32>
  return %6 : tensor<12xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<12xf32>, %arg1: tensor<2x6xf32>) -> tensor<12xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<12xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_1 = %cst_0) : tensor<i32>, tensor<12xf32>
    cond {
      %c_2 = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_2 = stablehlo.constant dense<4> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_2 : tensor<i32>
      %2 = stablehlo.slice %arg1 [1:2, 0:6] : (tensor<2x6xf32>) -> tensor<1x6xf32>
      %3 = stablehlo.reshape %2 : (tensor<1x6xf32>) -> tensor<6xf32>
      %4 = stablehlo.broadcast_in_dim %3, dims = [1] : (tensor<6xf32>) -> tensor<4x6xf32>
      %c_3 = stablehlo.constant dense<0> : tensor<i32>
      %5 = stablehlo.dynamic_slice %arg0, %1, sizes = [4] : (tensor<12xf32>, tensor<i32>) -> tensor<4xf32>
      %6 = stablehlo.broadcast_in_dim %5, dims = [0] : (tensor<4xf32>) -> tensor<4x6xf32>
      %7 = stablehlo.add %4, %6 : tensor<4x6xf32>
      %8 = stablehlo.exponential %7 : tensor<4x6xf32>
      %9 = stablehlo.reduce(%8 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<4x6xf32>, tensor<f32>) -> tensor<4xf32>
      %c_4 = stablehlo.constant dense<0> : tensor<i32>
      %10 = stablehlo.dynamic_update_slice %iterArg_1, %9, %1 : (tensor<12xf32>, tensor<4xf32>, tensor<i32>) -> tensor<12xf32>
      %c_5 = stablehlo.constant dense<1> : tensor<i32>
      %11 = stablehlo.add %iterArg, %c_5 : tensor<i32>
      stablehlo.return %11, %10 : tensor<i32>, tensor<12xf32>
    }
    return %0#1 : tensor<12xf32>
  }
}
