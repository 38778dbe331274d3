// rewrite narrow
// Logits of which the last row is used: the rest is never made.
func.func public @main(%h: tensor<512x64xf32>, %w: tensor<64x5000xf32>, %b: tensor<5000xf32>) -> tensor<1x5000xf32> {
  %0 = stablehlo.dot_general %h, %w, contracting_dims = [1] x [0] : (tensor<512x64xf32>, tensor<64x5000xf32>) -> tensor<512x5000xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<5000xf32>) -> tensor<512x5000xf32>
  %2 = stablehlo.add %0, %1 : tensor<512x5000xf32>
  %y = stablehlo.slice %2 [511:512, 0:5000] : (tensor<512x5000xf32>) -> tensor<1x5000xf32>
  return %y : tensor<1x5000xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<512x64xf32>, %arg1: tensor<64x5000xf32>, %arg2: tensor<5000xf32>) -> tensor<1x5000xf32> {
    %0 = stablehlo.slice %arg0 [511:512, 0:64] : (tensor<512x64xf32>) -> tensor<1x64xf32>
    %1 = stablehlo.dot_general %0, %arg1, contracting_dims = [1] x [0] : (tensor<1x64xf32>, tensor<64x5000xf32>) -> tensor<1x5000xf32>
    %2 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<5000xf32>) -> tensor<1x5000xf32>
    %3 = stablehlo.add %1, %2 : tensor<1x5000xf32>
    return %3 : tensor<1x5000xf32>
  }
}
