// rewrite one-hot-scatter
// The second adds to ones, the third several to a row: both stay.
func.func public @main(%u: tensor<5x1xf32>, %y: tensor<5x1x1xi32>, %ones: tensor<5x8xf32>) -> (tensor<5x8xf32>, tensor<5xf32>, tensor<5x8xf32>, tensor<8xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<5x8xf32>
  %a = "stablehlo.scatter"(%zeros, %y, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2>}> ({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %sum = stablehlo.add %l, %r : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<5x8xf32>, tensor<5x1x1xi32>, tensor<5x1xf32>) -> tensor<5x8xf32>
  %n = stablehlo.negate %a : tensor<5x8xf32>
  %s = stablehlo.reduce(%n init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<5x8xf32>, tensor<f32>) -> tensor<5xf32>
  %b = "stablehlo.scatter"(%ones, %y, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2>}> ({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %sum = stablehlo.add %l, %r : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<5x8xf32>, tensor<5x1x1xi32>, tensor<5x1xf32>) -> tensor<5x8xf32>
  %row = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<8xf32>
  %c = "stablehlo.scatter"(%row, %y, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 2>}> ({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %sum = stablehlo.add %l, %r : tensor<f32>
    stablehlo.return %sum : tensor<f32>
  }) : (tensor<8xf32>, tensor<5x1x1xi32>, tensor<5x1xf32>) -> tensor<8xf32>
  return %a, %s, %b, %c : tensor<5x8xf32>, tensor<5xf32>, tensor<5x8xf32>, tensor<8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<5x1xf32>, %arg1: tensor<5x1x1xi32>, %arg2: tensor<5x8xf32>) -> (tensor<5x8xf32>, tensor<5xf32>, tensor<5x8xf32>, tensor<8xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<5xf32>
    %c = stablehlo.constant dense<8> : tensor<5x1x1xi32>
    %c_0 = stablehlo.constant dense<0> : tensor<5x1x1xi32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.iota dim = 1 : tensor<5x8xi32>
    %1 = stablehlo.reshape %arg1 : (tensor<5x1x1xi32>) -> tensor<5xi32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<5xi32>) -> tensor<5x8xi32>
    %3 = stablehlo.compare EQ, %0, %2 : (tensor<5x8xi32>, tensor<5x8xi32>) -> tensor<5x8xi1>
    %4 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<5x8xf32>
    %5 = stablehlo.reshape %arg0 : (tensor<5x1xf32>) -> tensor<5xf32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [0] : (tensor<5xf32>) -> tensor<5x8xf32>
    %7 = stablehlo.select %3, %6, %4 : tensor<5x8xi1>, tensor<5x8xf32>
    %8 = stablehlo.compare GE, %arg1, %c_0 : (tensor<5x1x1xi32>, tensor<5x1x1xi32>) -> tensor<5x1x1xi1>
    %9 = stablehlo.compare LT, %arg1, %c : (tensor<5x1x1xi32>, tensor<5x1x1xi32>) -> tensor<5x1x1xi1>
    %10 = stablehlo.and %8, %9 : tensor<5x1x1xi1>
    %11 = stablehlo.reshape %10 : (tensor<5x1x1xi1>) -> tensor<5xi1>
    %12 = stablehlo.select %11, %5, %cst : tensor<5xi1>, tensor<5xf32>
    %13 = stablehlo.negate %12 : tensor<5xf32>
    %14 = "stablehlo.scatter"(%arg2, %arg1, %arg0) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2>}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %17 = stablehlo.add %arg3, %arg4 : tensor<f32>
      stablehlo.return %17 : tensor<f32>
    }) : (tensor<5x8xf32>, tensor<5x1x1xi32>, tensor<5x1xf32>) -> tensor<5x8xf32>
    %15 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<8xf32>
    %16 = "stablehlo.scatter"(%15, %arg1, %arg0) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 2>}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %17 = stablehlo.add %arg3, %arg4 : tensor<f32>
      stablehlo.return %17 : tensor<f32>
    }) : (tensor<8xf32>, tensor<5x1x1xi32>, tensor<5x1xf32>) -> tensor<8xf32>
    return %7, %13, %14, %16 : tensor<5x8xf32>, tensor<5xf32>, tensor<5x8xf32>, tensor<8xf32>
  }
}
