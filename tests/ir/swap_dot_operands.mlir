// rewrite swap-dot-operands bytes first
// The gradient of a matrix of weights as JAX writes it; a transposed product that is read otherwise too stays.
func.func public @main(%x: tensor<32x16xf32>, %g: tensor<32x8xf32>) -> (tensor<16x8xf32>, tensor<16x8xf32>) {
  %0 = stablehlo.dot_general %g, %x, contracting_dims = [0] x [0], precision = [HIGHEST, DEFAULT] : (tensor<32x8xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<8x16xf32>) -> tensor<16x8xf32>
  %2 = stablehlo.tanh %g : tensor<32x8xf32>
  %3 = stablehlo.dot_general %2, %x, contracting_dims = [0] x [0] : (tensor<32x8xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
  %4 = stablehlo.transpose %3, dims = [1, 0] : (tensor<8x16xf32>) -> tensor<16x8xf32>
  %5 = stablehlo.exponential %3 : tensor<8x16xf32>
  %6 = stablehlo.transpose %5, dims = [1, 0] : (tensor<8x16xf32>) -> tensor<16x8xf32>
  %7 = stablehlo.add %4, %6 : tensor<16x8xf32>
  return %1, %7 : tensor<16x8xf32>, tensor<16x8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<32x16xf32>, %arg1: tensor<32x8xf32>) -> (tensor<16x8xf32>, tensor<16x8xf32>) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [0] x [0], precision = [DEFAULT, HIGHEST] : (tensor<32x16xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
    %1 = stablehlo.tanh %arg1 : tensor<32x8xf32>
    %2 = stablehlo.dot_general %1, %arg0, contracting_dims = [0] x [0] : (tensor<32x8xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
    %3 = stablehlo.transpose %2, dims = [1, 0] : (tensor<8x16xf32>) -> tensor<16x8xf32>
    %4 = stablehlo.exponential %2 : tensor<8x16xf32>
    %5 = stablehlo.transpose %4, dims = [1, 0] : (tensor<8x16xf32>) -> tensor<16x8xf32>
    %6 = stablehlo.add %3, %5 : tensor<16x8xf32>
    return %0, %6 : tensor<16x8xf32>, tensor<16x8xf32>
  }
}
