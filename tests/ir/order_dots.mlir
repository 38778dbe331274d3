// order-dots
// The second dot gets a transpose; the third is in order; the fourth has no other result type.
func.func public @main(%w: tensor<64x16xbf16>, %x: tensor<2x64x16xbf16>, %y: tensor<64x2x4xbf16>, %z: tensor<2x64x4xbf16>) -> (tensor<16x2x4xf32>, tensor<2x16x4xf32>, tensor<2x16x4xf32>, tensor<2x16x4xbf16>) {
  %a = stablehlo.dot_general %w, %y, contracting_dims = [0] x [0] : (tensor<64x16xbf16>, tensor<64x2x4xbf16>) -> tensor<16x2x4xf32>
  %b = stablehlo.dot_general %x, %y, batching_dims = [0] x [1], contracting_dims = [1] x [0] : (tensor<2x64x16xbf16>, tensor<64x2x4xbf16>) -> tensor<2x16x4xf32>
  %c = stablehlo.dot_general %x, %z, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<2x64x16xbf16>, tensor<2x64x4xbf16>) -> tensor<2x16x4xf32>
  %d = stablehlo.dot_general %x, %y, batching_dims = [0] x [1], contracting_dims = [1] x [0] : (tensor<2x64x16xbf16>, tensor<64x2x4xbf16>) -> tensor<2x16x4xbf16>
  return %a, %b, %c, %d : tensor<16x2x4xf32>, tensor<2x16x4xf32>, tensor<2x16x4xf32>, tensor<2x16x4xbf16>
}

// -----
module {
  func.func public @main(%arg0: tensor<64x16xbf16>, %arg1: tensor<2x64x16xbf16>, %arg2: tensor<64x2x4xbf16>, %arg3: tensor<2x64x4xbf16>) -> (tensor<16x2x4xf32>, tensor<2x16x4xf32>, tensor<2x16x4xf32>, tensor<2x16x4xbf16>) {
    %0 = stablehlo.reshape %arg2 : (tensor<64x2x4xbf16>) -> tensor<64x8xbf16>
    %1 = stablehlo.dot_general %arg0, %0, contracting_dims = [0] x [0] : (tensor<64x16xbf16>, tensor<64x8xbf16>) -> tensor<16x8xf32>
    %2 = stablehlo.reshape %1 : (tensor<16x8xf32>) -> tensor<16x2x4xf32>
    %3 = stablehlo.transpose %arg2, dims = [1, 0, 2] : (tensor<64x2x4xbf16>) -> tensor<2x64x4xbf16>
    %4 = stablehlo.dot_general %arg1, %3, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<2x64x16xbf16>, tensor<2x64x4xbf16>) -> tensor<2x16x4xf32>
    %5 = stablehlo.dot_general %arg1, %arg3, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<2x64x16xbf16>, tensor<2x64x4xbf16>) -> tensor<2x16x4xf32>
    %6 = stablehlo.dot_general %arg1, %arg2, batching_dims = [0] x [1], contracting_dims = [1] x [0] : (tensor<2x64x16xbf16>, tensor<64x2x4xbf16>) -> tensor<2x16x4xbf16>
    return %2, %4, %5, %6 : tensor<16x2x4xf32>, tensor<2x16x4xf32>, tensor<2x16x4xf32>, tensor<2x16x4xbf16>
  }
}
