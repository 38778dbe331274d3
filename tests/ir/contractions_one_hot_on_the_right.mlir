// rewrite contractions
// The one-hot matrix on the right picks columns.
func.func public @main(%arg0: tensor<7xi8>, %arg1: tensor<5x4xf32>) -> (tensor<5x7xf64>) {
  %0 = stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<7xi8>) -> tensor<1x7xi8>
  %1 = stablehlo.iota dim = 0 : tensor<4x1xi8>
  %2 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<1x7xi8>) -> tensor<4x7xi8>
  %3 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<4x1xi8>) -> tensor<4x7xi8>
  %4 = stablehlo.compare EQ, %2, %3, SIGNED : (tensor<4x7xi8>, tensor<4x7xi8>) -> tensor<4x7xi1>
  %5 = stablehlo.convert %4 : (tensor<4x7xi1>) -> tensor<4x7xf64>
  %6 = stablehlo.convert %arg1 : (tensor<5x4xf32>) -> tensor<5x4xf64>
  %7 = stablehlo.convert %5 : tensor<4x7xf64>
  %8 = stablehlo.dot_general %6, %7, contracting_dims = [1] x [0] : (tensor<5x4xf64>, tensor<4x7xf64>) -> tensor<5x7xf64>
  return %8 : tensor<5x7xf64>
}

// -----
module {
  func.func public @main(%arg0: tensor<7xi8>, %arg1: tensor<5x4xf32>) -> tensor<5x7xf64> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<5x7xf64>
    %c = stablehlo.constant dense<4> : tensor<7xi32>
    %c_0 = stablehlo.constant dense<0> : tensor<7xi32>
    %0 = stablehlo.convert %arg1 : (tensor<5x4xf32>) -> tensor<5x4xf64>
    %1 = stablehlo.convert %arg0 : (tensor<7xi8>) -> tensor<7xi32>
    %2 = "stablehlo.gather"(%0, %1) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>, slice_sizes = array<i64: 5, 1>}> : (tensor<5x4xf64>, tensor<7xi32>) -> tensor<5x7xf64>
    %3 = stablehlo.compare GE, %1, %c_0 : (tensor<7xi32>, tensor<7xi32>) -> tensor<7xi1>
    %4 = stablehlo.compare LT, %1, %c : (tensor<7xi32>, tensor<7xi32>) -> tensor<7xi1>
    %5 = stablehlo.and %3, %4 : tensor<7xi1>
    %6 = stablehlo.broadcast_in_dim %5, dims = [1] : (tensor<7xi1>) -> tensor<5x7xi1>
    %7 = stablehlo.select %6, %2, %cst : tensor<5x7xi1>, tensor<5x7xf64>
    return %7 : tensor<5x7xf64>
  }
}
