// canonicalize
// The factor that is repeated along the outermost of three dimensions comes second; others stay where they are.
func.func public @main(%c: tensor<4x3xf32>, %x: tensor<8x4x3xf32>, %v: tensor<3xf32>) -> (tensor<8x4x3xf32>, tensor<8x4x3xf32>, tensor<8x4x3xf32>) {
  %e = stablehlo.exponential %c : tensor<4x3xf32>
  %b = stablehlo.broadcast_in_dim %e, dims = [1, 2] : (tensor<4x3xf32>) -> tensor<8x4x3xf32>
  %n = stablehlo.negate %b : tensor<8x4x3xf32>
  %0 = stablehlo.multiply %n, %x : tensor<8x4x3xf32>
  %1 = stablehlo.multiply %x, %b : tensor<8x4x3xf32>
  %r = stablehlo.broadcast_in_dim %v, dims = [2] : (tensor<3xf32>) -> tensor<8x4x3xf32>
  %2 = stablehlo.multiply %r, %x : tensor<8x4x3xf32>
  return %0, %1, %2 : tensor<8x4x3xf32>, tensor<8x4x3xf32>, tensor<8x4x3xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<4x3xf32>, %arg1: tensor<8x4x3xf32>, %arg2: tensor<3xf32>) -> (tensor<8x4x3xf32>, tensor<8x4x3xf32>, tensor<8x4x3xf32>) {
    %0 = stablehlo.exponential %arg0 : tensor<4x3xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [1, 2] : (tensor<4x3xf32>) -> tensor<8x4x3xf32>
    %2 = stablehlo.negate %1 : tensor<8x4x3xf32>
    %3 = stablehlo.multiply %arg1, %2 : tensor<8x4x3xf32>
    %4 = stablehlo.multiply %arg1, %1 : tensor<8x4x3xf32>
    %5 = stablehlo.broadcast_in_dim %arg2, dims = [2] : (tensor<3xf32>) -> tensor<8x4x3xf32>
    %6 = stablehlo.multiply %5, %arg1 : tensor<8x4x3xf32>
    return %3, %4, %6 : tensor<8x4x3xf32>, tensor<8x4x3xf32>, tensor<8x4x3xf32>
  }
}
