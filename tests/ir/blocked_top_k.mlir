// rewrite blocked-top-k
// The largest of 5000 elements are in the blocks of the largest maxima, or in the rest of 8.
func.func public @main(%x: tensor<3x5000xf32>) -> (tensor<3x7xf32>, tensor<3x7xi32>) {
  %v, %i = chlo.top_k(%x, k = 7) : tensor<3x5000xf32> -> (tensor<3x7xf32>, tensor<3x7xi32>)
  return %v, %i : tensor<3x7xf32>, tensor<3x7xi32>
}

// -----
module {
  func.func public @main(%arg0: tensor<3x5000xf32>) -> (tensor<3x7xf32>, tensor<3x7xi32>) {
    %c = stablehlo.constant dense<4768> : tensor<3x7xi32>
    %c_0 = stablehlo.constant dense<6> : tensor<3x7xi32>
    %c_1 = stablehlo.constant dense<224> : tensor<3x7xi32>
    %c_2 = stablehlo.constant dense<32> : tensor<3x7xi32>
    %c_3 = stablehlo.constant dense<2147483647> : tensor<3x156xi32>
    %c_4 = stablehlo.constant dense<31> : tensor<3x156xi32>
    %c_5 = stablehlo.constant dense<-2147483648> : tensor<i32>
    %c_6 = stablehlo.constant dense<2147483647> : tensor<3x4992xi32>
    %c_7 = stablehlo.constant dense<31> : tensor<3x4992xi32>
    %0 = stablehlo.slice %arg0 [0:3, 0:4992] : (tensor<3x5000xf32>) -> tensor<3x4992xf32>
    %1 = stablehlo.bitcast_convert %0 : (tensor<3x4992xf32>) -> tensor<3x4992xi32>
    %2 = stablehlo.shift_right_arithmetic %1, %c_7 : tensor<3x4992xi32>
    %3 = stablehlo.and %2, %c_6 : tensor<3x4992xi32>
    %4 = stablehlo.xor %1, %3 : tensor<3x4992xi32>
    %5 = stablehlo.reshape %4 : (tensor<3x4992xi32>) -> tensor<3x156x2x16xi32>
    %6 = stablehlo.reduce(%5 init: %c_5) applies stablehlo.maximum across dimensions = [2] : (tensor<3x156x2x16xi32>, tensor<i32>) -> tensor<3x156x16xi32>
    %7 = stablehlo.reduce(%6 init: %c_5) applies stablehlo.maximum across dimensions = [2] : (tensor<3x156x16xi32>, tensor<i32>) -> tensor<3x156xi32>
    %8 = stablehlo.shift_right_arithmetic %7, %c_4 : tensor<3x156xi32>
    %9 = stablehlo.and %8, %c_3 : tensor<3x156xi32>
    %10 = stablehlo.xor %7, %9 : tensor<3x156xi32>
    %11 = stablehlo.bitcast_convert %10 : (tensor<3x156xi32>) -> tensor<3x156xf32>
    %values, %indices = chlo.top_k(%11, k = 7) : tensor<3x156xf32> -> (tensor<3x7xf32>, tensor<3x7xi32>)
    %12 = "stablehlo.sort"(%indices) <{dimension = 1 : i64, is_stable = false}> ({
    ^bb0(%arg1: tensor<i32>, %arg2: tensor<i32>):
      %29 = stablehlo.compare LT, %arg1, %arg2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %29 : tensor<i1>
    }) : (tensor<3x7xi32>) -> tensor<3x7xi32>
    %13 = stablehlo.multiply %12, %c_2 : tensor<3x7xi32>
    %14 = stablehlo.reshape %13 : (tensor<3x7xi32>) -> tensor<3x7x1xi32>
    %15 = "stablehlo.gather"(%arg0, %14) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 32>}> : (tensor<3x5000xf32>, tensor<3x7x1xi32>) -> tensor<3x7x32xf32>
    %16 = stablehlo.reshape %15 : (tensor<3x7x32xf32>) -> tensor<3x224xf32>
    %17 = stablehlo.slice %arg0 [0:3, 4992:5000] : (tensor<3x5000xf32>) -> tensor<3x8xf32>
    %18 = stablehlo.concatenate %16, %17, dim = 1 : (tensor<3x224xf32>, tensor<3x8xf32>) -> tensor<3x232xf32>
    %values_8, %indices_9 = chlo.top_k(%18, k = 7) : tensor<3x232xf32> -> (tensor<3x7xf32>, tensor<3x7xi32>)
    %19 = stablehlo.divide %indices_9, %c_2 : tensor<3x7xi32>
    %20 = stablehlo.minimum %19, %c_0 : tensor<3x7xi32>
    %21 = stablehlo.reshape %20 : (tensor<3x7xi32>) -> tensor<3x7x1xi32>
    %22 = "stablehlo.gather"(%12, %21) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1>}> : (tensor<3x7xi32>, tensor<3x7x1xi32>) -> tensor<3x7xi32>
    %23 = stablehlo.multiply %22, %c_2 : tensor<3x7xi32>
    %24 = stablehlo.remainder %indices_9, %c_2 : tensor<3x7xi32>
    %25 = stablehlo.add %23, %24 : tensor<3x7xi32>
    %26 = stablehlo.add %indices_9, %c : tensor<3x7xi32>
    %27 = stablehlo.compare LT, %indices_9, %c_1 : (tensor<3x7xi32>, tensor<3x7xi32>) -> tensor<3x7xi1>
    %28 = stablehlo.select %27, %25, %26 : tensor<3x7xi1>, tensor<3x7xi32>
    return %values_8, %28 : tensor<3x7xf32>, tensor<3x7xi32>
  }
}
