// rewrite fold-converts
func.func public @main(%x: tensor<64x32xbf16>, %w: tensor<64x16xbf16>) -> tensor<32x16xf32> {
  %0 = stablehlo.convert %x : (tensor<64x32xbf16>) -> tensor<64x32xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<64x32xf32>) -> tensor<32x64xf32>
  %2 = stablehlo.convert %w : (tensor<64x16xbf16>) -> tensor<64x16xf32>
  %y = stablehlo.dot_general %1, %2, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<32x64xf32>, tensor<64x16xf32>) -> tensor<32x16xf32>
  return %y : tensor<32x16xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<64x32xbf16>, %arg1: tensor<64x16xbf16>) -> tensor<32x16xf32> {
    %0 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<64x32xbf16>) -> tensor<32x64xbf16>
    %1 = stablehlo.dot_general %0, %arg1, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST] : (tensor<32x64xbf16>, tensor<64x16xbf16>) -> tensor<32x16xf32>
    return %1 : tensor<32x16xf32>
  }
}
