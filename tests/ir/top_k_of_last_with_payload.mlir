// rewrite sort-to-top-k
// The last three along dimension 0, in ascending order, and what came along with them, turned round.
func.func public @main(%x: tensor<100x4xi16>, %p: tensor<100x4xf64>) -> (tensor<3x4xi16>, tensor<3x2xf64>) {
  %s:2 = "stablehlo.sort"(%x, %p) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<i16>, %b: tensor<i16>, %c: tensor<f64>, %d: tensor<f64>):
    %0 = stablehlo.compare LT, %a, %b, SIGNED : (tensor<i16>, tensor<i16>) -> tensor<i1>
    stablehlo.return %0 : tensor<i1>
  }) : (tensor<100x4xi16>, tensor<100x4xf64>) -> (tensor<100x4xi16>, tensor<100x4xf64>)
  %y = stablehlo.slice %s#0 [97:100, 0:4] : (tensor<100x4xi16>) -> tensor<3x4xi16>
  %r = stablehlo.reverse %s#1, dims = [0] : tensor<100x4xf64>
  %z = stablehlo.slice %r [0:3, 0:2] : (tensor<100x4xf64>) -> tensor<3x2xf64>
  return %y, %z : tensor<3x4xi16>, tensor<3x2xf64>
}

// -----
module {
  func.func public @main(%arg0: tensor<100x4xi16>, %arg1: tensor<100x4xf64>) -> (tensor<3x4xi16>, tensor<3x2xf64>) {
    %c = stablehlo.constant dense<99> : tensor<17x4xi32>
    %0 = stablehlo.convert %arg0 : (tensor<100x4xi16>) -> tensor<100x4xf32>
    %1 = stablehlo.reverse %0, dims = [0] : tensor<100x4xf32>
    %2 = stablehlo.transpose %1, dims = [1, 0] : (tensor<100x4xf32>) -> tensor<4x100xf32>
    %values, %indices = chlo.top_k(%2, k = 17) : tensor<4x100xf32> -> (tensor<4x17xf32>, tensor<4x17xi32>)
    %3 = stablehlo.transpose %values, dims = [1, 0] : (tensor<4x17xf32>) -> tensor<17x4xf32>
    %4 = stablehlo.transpose %indices, dims = [1, 0] : (tensor<4x17xi32>) -> tensor<17x4xi32>
    %5 = stablehlo.reverse %3, dims = [0] : tensor<17x4xf32>
    %6 = stablehlo.subtract %c, %4 : tensor<17x4xi32>
    %7 = stablehlo.reverse %6, dims = [0] : tensor<17x4xi32>
    %8 = stablehlo.convert %5 : (tensor<17x4xf32>) -> tensor<17x4xi16>
    %9 = stablehlo.reshape %7 : (tensor<17x4xi32>) -> tensor<17x4x1xi32>
    %10 = "stablehlo.gather"(%arg1, %9) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], operand_batching_dims = [1], start_indices_batching_dims = [1], start_index_map = [0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1>}> : (tensor<100x4xf64>, tensor<17x4x1xi32>) -> tensor<17x4xf64>
    %11 = stablehlo.slice %8 [14:17, 0:4] : (tensor<17x4xi16>) -> tensor<3x4xi16>
    %12 = stablehlo.slice %10 [14:17, 0:2] : (tensor<17x4xf64>) -> tensor<3x2xf64>
    %13 = stablehlo.reverse %12, dims = [0] : tensor<3x2xf64>
    return %11, %13 : tensor<3x4xi16>, tensor<3x2xf64>
  }
}
