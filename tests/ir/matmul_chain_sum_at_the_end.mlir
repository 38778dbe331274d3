// rewrite matmul-chain
// The sum of a matmul's elements: both sides are summed before.
func.func public @main(%arg0: tensor<8x3xf32>, %arg1: tensor<3x9xf32>) -> (tensor<f32>) {
  %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<8x3xf32>, tensor<3x9xf32>) -> tensor<8x9xf32>
  %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<8x9xf32>, tensor<f32>) -> tensor<f32>
  return %1 : tensor<f32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x3xf32>, %arg1: tensor<3x9xf32>) -> tensor<f32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0] : (tensor<8x3xf32>, tensor<f32>) -> tensor<3xf32>
    %1 = stablehlo.reduce(%arg1 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<3x9xf32>, tensor<f32>) -> tensor<3xf32>
    %2 = stablehlo.dot_general %0, %1, contracting_dims = [0] x [0] : (tensor<3xf32>, tensor<3xf32>) -> tensor<f32>
    return %2 : tensor<f32>
  }
}
