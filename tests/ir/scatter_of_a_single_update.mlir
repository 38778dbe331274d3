// split scatter along 0 by 4
// A single update is made within the chunk and chosen where it is meant: XLA folds slices of slices without clamps.
func.func public @main(%x: tensor<8x3xf32>, %i: tensor<1xi32>, %u: tensor<3xf32>) -> tensor<8x3xf32> {
  %s = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>, unique_indices = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %b : tensor<f32>
  }) : (tensor<8x3xf32>, tensor<1xi32>, tensor<3xf32>) -> tensor<8x3xf32>
  %y = stablehlo.sine %s : tensor<8x3xf32>
  return %y : tensor<8x3xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x3xf32>, %arg1: tensor<1xi32>, %arg2: tensor<3xf32>) -> tensor<8x3xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<8x3xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %cst) : tensor<i32>, tensor<8x3xf32>
    cond {
      %c_1 = stablehlo.constant dense<2> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_1 = stablehlo.constant dense<4> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_1 : tensor<i32>
      %c_2 = stablehlo.constant dense<0> : tensor<i32>
      %2 = stablehlo.dynamic_slice %arg0, %1, %c_2, sizes = [4, 3] : (tensor<8x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
      %c_3 = stablehlo.constant dense<-2147483640> : tensor<i32>
      %3 = stablehlo.broadcast_in_dim %c_3, dims = [] : (tensor<i32>) -> tensor<1xi32>
      %4 = stablehlo.maximum %arg1, %3 : tensor<1xi32>
      %c_4 = stablehlo.constant dense<1> : tensor<i32>
      %5 = stablehlo.multiply %1, %c_4 : tensor<i32>
      %6 = stablehlo.broadcast_in_dim %5, dims = [] : (tensor<i32>) -> tensor<1xi32>
      %7 = stablehlo.subtract %4, %6 : tensor<1xi32>
      %c_5 = stablehlo.constant dense<3> : tensor<i32>
      %c_6 = stablehlo.constant dense<0> : tensor<i32>
      %8 = stablehlo.clamp %c_6, %7, %c_5 : (tensor<i32>, tensor<1xi32>, tensor<i32>) -> tensor<1xi32>
      %9 = "stablehlo.scatter"(%2, %8, %arg2) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>, unique_indices = true}> ({
      ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
        stablehlo.return %arg4 : tensor<f32>
      }) : (tensor<4x3xf32>, tensor<1xi32>, tensor<3xf32>) -> tensor<4x3xf32>
      %c_7 = stablehlo.constant dense<4> : tensor<i32>
      %10 = stablehlo.broadcast_in_dim %c_7, dims = [] : (tensor<i32>) -> tensor<1xi32>
      %11 = stablehlo.compare LT, %7, %10 : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
      %c_8 = stablehlo.constant dense<0> : tensor<1xi32>
      %12 = stablehlo.compare GE, %7, %c_8 : (tensor<1xi32>, tensor<1xi32>) -> tensor<1xi1>
      %13 = stablehlo.and %11, %12 : tensor<1xi1>
      %14 = stablehlo.slice %13 [0:1] : (tensor<1xi1>) -> tensor<1xi1>
      %15 = stablehlo.reshape %14 : (tensor<1xi1>) -> tensor<i1>
      %16 = stablehlo.select %15, %9, %2 : tensor<i1>, tensor<4x3xf32>
      %17 = stablehlo.sine %16 : tensor<4x3xf32>
      %c_9 = stablehlo.constant dense<0> : tensor<i32>
      %18 = stablehlo.dynamic_update_slice %iterArg_0, %17, %1, %c_9 : (tensor<8x3xf32>, tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<8x3xf32>
      %c_10 = stablehlo.constant dense<1> : tensor<i32>
      %19 = stablehlo.add %iterArg, %c_10 : tensor<i32>
      stablehlo.return %19, %18 : tensor<i32>, tensor<8x3xf32>
    }
    return %0#1 : tensor<8x3xf32>
  }
}
