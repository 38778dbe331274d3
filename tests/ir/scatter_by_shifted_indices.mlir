// split scatter along 0 by 4
// Indices count from the chunk's start: updates of other chunks are out of bounds. Rows 3 and up are written again.
func.func public @main(%x: tensor<7x3xf32>, %i: tensor<5x1xi32>, %u: tensor<5x3xf32>) -> tensor<7x3xf32> {
  %e = stablehlo.exponential %x : tensor<7x3xf32>
  %s = "stablehlo.scatter"(%e, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32>
  }) : (tensor<7x3xf32>, tensor<5x1xi32>, tensor<5x3xf32>) -> tensor<7x3xf32>
  %y = stablehlo.sine %s : tensor<7x3xf32>
  return %y : tensor<7x3xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<7x3xf32>, %arg1: tensor<5x1xi32>, %arg2: tensor<5x3xf32>) -> tensor<7x3xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<7x3xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %cst) : tensor<i32>, tensor<7x3xf32>
    cond {
      %c_1 = stablehlo.constant dense<2> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_1 = stablehlo.constant dense<4> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_1 : tensor<i32>
      %c_2 = stablehlo.constant dense<3> : tensor<i32>
      %2 = stablehlo.minimum %1, %c_2 : tensor<i32>
      %3 = stablehlo.subtract %1, %2 : tensor<i32>
      %c_3 = stablehlo.constant dense<0> : tensor<i32>
      %4 = stablehlo.dynamic_slice %arg0, %2, %c_3, sizes = [4, 3] : (tensor<7x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
      %5 = stablehlo.exponential %4 : tensor<4x3xf32>
      %c_4 = stablehlo.constant dense<-2147483641> : tensor<i32>
      %6 = stablehlo.broadcast_in_dim %c_4, dims = [] : (tensor<i32>) -> tensor<5x1xi32>
      %7 = stablehlo.maximum %arg1, %6 : tensor<5x1xi32>
      %c_5 = stablehlo.constant dense<1> : tensor<i32>
      %8 = stablehlo.multiply %2, %c_5 : tensor<i32>
      %9 = stablehlo.broadcast_in_dim %8, dims = [] : (tensor<i32>) -> tensor<5x1xi32>
      %10 = stablehlo.subtract %7, %9 : tensor<5x1xi32>
      %11 = "stablehlo.scatter"(%5, %10, %arg2) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
      ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
        %15 = stablehlo.add %arg3, %arg4 : tensor<f32>
        stablehlo.return %15 : tensor<f32>
      }) : (tensor<4x3xf32>, tensor<5x1xi32>, tensor<5x3xf32>) -> tensor<4x3xf32>
      %12 = stablehlo.sine %11 : tensor<4x3xf32>
      %c_6 = stablehlo.constant dense<0> : tensor<i32>
      %13 = stablehlo.dynamic_update_slice %iterArg_0, %12, %2, %c_6 : (tensor<7x3xf32>, tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<7x3xf32>
      %c_7 = stablehlo.constant dense<1> : tensor<i32>
      %14 = stablehlo.add %iterArg, %c_7 : tensor<i32>
      stablehlo.return %14, %13 : tensor<i32>, tensor<7x3xf32>
    }
    return %0#1 : tensor<7x3xf32>
  }
}
