// rewrite contractions
// A matmul with a one-hot matrix picks rows; those out of range are zero.
func.func public @main(%arg0: tensor<7xi32>, %arg1: tensor<4x5xf32>) -> (tensor<7x5xf64>) {
  %0 = stablehlo.broadcast_in_dim %arg0, dims = [0] : (tensor<7xi32>) -> tensor<7x1xi32>
  %1 = stablehlo.iota dim = 1 : tensor<1x4xi32>
  %2 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<7x1xi32>) -> tensor<7x4xi32>
  %3 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<1x4xi32>) -> tensor<7x4xi32>
  %4 = stablehlo.compare EQ, %2, %3, SIGNED : (tensor<7x4xi32>, tensor<7x4xi32>) -> tensor<7x4xi1>
  %5 = stablehlo.convert %4 : (tensor<7x4xi1>) -> tensor<7x4xf64>
  %6 = stablehlo.convert %5 : tensor<7x4xf64>
  %7 = stablehlo.convert %arg1 : (tensor<4x5xf32>) -> tensor<4x5xf64>
  %8 = stablehlo.dot_general %6, %7, contracting_dims = [1] x [0] : (tensor<7x4xf64>, tensor<4x5xf64>) -> tensor<7x5xf64>
  return %8 : tensor<7x5xf64>
}

// -----
module {
  func.func public @main(%arg0: tensor<7xi32>, %arg1: tensor<4x5xf32>) -> tensor<7x5xf64> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<7x5xf64>
    %c = stablehlo.constant dense<4> : tensor<7xi32>
    %c_0 = stablehlo.constant dense<0> : tensor<7xi32>
    %0 = stablehlo.convert %arg1 : (tensor<4x5xf32>) -> tensor<4x5xf64>
    %1 = "stablehlo.gather"(%0, %arg0) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 5>}> : (tensor<4x5xf64>, tensor<7xi32>) -> tensor<7x5xf64>
    %2 = stablehlo.compare GE, %arg0, %c_0 : (tensor<7xi32>, tensor<7xi32>) -> tensor<7xi1>
    %3 = stablehlo.compare LT, %arg0, %c : (tensor<7xi32>, tensor<7xi32>) -> tensor<7xi1>
    %4 = stablehlo.and %2, %3 : tensor<7xi1>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<7xi1>) -> tensor<7x5xi1>
    %6 = stablehlo.select %5, %1, %cst : tensor<7x5xi1>, tensor<7x5xf64>
    return %6 : tensor<7x5xf64>
  }
}
