// split multiply along 0 by 1
// A sum of products with a chunk of one is made without that dimension; a maximum keeps it.
func.func public @main(%x: tensor<3x5x4xf32>, %y: tensor<3x5x4xf32>) -> (tensor<3x5xf32>, tensor<3x4xf32>, tensor<3x5xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %p = stablehlo.multiply %x, %y : tensor<3x5x4xf32>
  %a = stablehlo.reduce(%p init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<3x5x4xf32>, tensor<f32>) -> tensor<3x5xf32>
  %b = stablehlo.reduce(%p init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<3x5x4xf32>, tensor<f32>) -> tensor<3x4xf32>
  %c = stablehlo.reduce(%p init: %least) applies stablehlo.maximum across dimensions = [2] : (tensor<3x5x4xf32>, tensor<f32>) -> tensor<3x5xf32>
  return %a, %b, %c : tensor<3x5xf32>, tensor<3x4xf32>, tensor<3x5xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<3x5x4xf32>, %arg1: tensor<3x5x4xf32>) -> (tensor<3x5xf32>, tensor<3x4xf32>, tensor<3x5xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<3x5xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<3x4xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<3x5xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:4 = stablehlo.while(%iterArg = %c, %iterArg_4 = %cst_1, %iterArg_5 = %cst_2, %iterArg_6 = %cst_3) : tensor<i32>, tensor<3x5xf32>, tensor<3x4xf32>, tensor<3x5xf32>
    cond {
      %c_7 = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_7 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_7 = stablehlo.constant dense<0> : tensor<i32>
      %1 = stablehlo.dynamic_slice %arg0, %iterArg, %c_7, %c_7, sizes = [1, 5, 4] : (tensor<3x5x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x5x4xf32>
      %c_8 = stablehlo.constant dense<0> : tensor<i32>
      %2 = stablehlo.dynamic_slice %arg1, %iterArg, %c_8, %c_8, sizes = [1, 5, 4] : (tensor<3x5x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x5x4xf32>
      %3 = stablehlo.multiply %1, %2 : tensor<1x5x4xf32>
      %4 = stablehlo.reshape %3 : (tensor<1x5x4xf32>) -> tensor<5x4xf32>
      %5 = stablehlo.reduce(%4 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<5x4xf32>, tensor<f32>) -> tensor<5xf32>
      %6 = stablehlo.reshape %5 : (tensor<5xf32>) -> tensor<1x5xf32>
      %c_9 = stablehlo.constant dense<0> : tensor<i32>
      %7 = stablehlo.dynamic_update_slice %iterArg_4, %6, %iterArg, %c_9 : (tensor<3x5xf32>, tensor<1x5xf32>, tensor<i32>, tensor<i32>) -> tensor<3x5xf32>
      %8 = stablehlo.reshape %3 : (tensor<1x5x4xf32>) -> tensor<5x4xf32>
      %9 = stablehlo.reduce(%8 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<5x4xf32>, tensor<f32>) -> tensor<4xf32>
      %10 = stablehlo.reshape %9 : (tensor<4xf32>) -> tensor<1x4xf32>
      %c_10 = stablehlo.constant dense<0> : tensor<i32>
      %11 = stablehlo.dynamic_update_slice %iterArg_5, %10, %iterArg, %c_10 : (tensor<3x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
      %12 = stablehlo.reduce(%3 init: %cst_0) applies stablehlo.maximum across dimensions = [2] : (tensor<1x5x4xf32>, tensor<f32>) -> tensor<1x5xf32>
      %c_11 = stablehlo.constant dense<0> : tensor<i32>
      %13 = stablehlo.dynamic_update_slice %iterArg_6, %12, %iterArg, %c_11 : (tensor<3x5xf32>, tensor<1x5xf32>, tensor<i32>, tensor<i32>) -> tensor<3x5xf32>
      %c_12 = stablehlo.constant dense<1> : tensor<i32>
      %14 = stablehlo.add %iterArg, %c_12 : tensor<i32>
      stablehlo.return %14, %7, %11, %13 : tensor<i32>, tensor<3x5xf32>, tensor<3x4xf32>, tensor<3x5xf32>
    }
    return %0#1, %0#2, %0#3 : tensor<3x5xf32>, tensor<3x4xf32>, tensor<3x5xf32>
  }
}
