// rewrite narrow
// The slice lies in the second part of the concatenation, in whole groups of the merged dimension; the stride stays.
func.func public @main(%a: tensor<4x6x8xf32>, %b: tensor<3x6x8xf32>, %w: tensor<8x8xf32>) -> tensor<3x8xf32> {
  %0 = stablehlo.concatenate %a, %b, dim = 0 : (tensor<4x6x8xf32>, tensor<3x6x8xf32>) -> tensor<7x6x8xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [2] x [0] : (tensor<7x6x8xf32>, tensor<8x8xf32>) -> tensor<7x6x8xf32>
  %2 = stablehlo.reshape %1 : (tensor<7x6x8xf32>) -> tensor<42x8xf32>
  %3 = stablehlo.slice %2 [24:36, 0:8] : (tensor<42x8xf32>) -> tensor<12x8xf32>
  %y = stablehlo.slice %3 [0:11:5, 0:8] : (tensor<12x8xf32>) -> tensor<3x8xf32>
  return %y : tensor<3x8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<4x6x8xf32>, %arg1: tensor<3x6x8xf32>, %arg2: tensor<8x8xf32>) -> tensor<3x8xf32> {
    %0 = stablehlo.slice %arg1 [0:2, 0:6, 0:8] : (tensor<3x6x8xf32>) -> tensor<2x6x8xf32>
    %1 = stablehlo.dot_general %0, %arg2, contracting_dims = [2] x [0] : (tensor<2x6x8xf32>, tensor<8x8xf32>) -> tensor<2x6x8xf32>
    %2 = stablehlo.reshape %1 : (tensor<2x6x8xf32>) -> tensor<12x8xf32>
    %3 = stablehlo.slice %2 [0:11:5, 0:8] : (tensor<12x8xf32>) -> tensor<3x8xf32>
    return %3 : tensor<3x8xf32>
  }
}
