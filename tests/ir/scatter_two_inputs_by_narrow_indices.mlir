// split scatter along 1 by 3
// The second component of each index is shifted, in a type that can hold it; both inputs are chunked.
func.func public @main(%x: tensor<4x6xf32>, %z: tensor<4x6xi32>, %i: tensor<2x5xui8>, %u: tensor<5xf32>, %w: tensor<5xi32>) -> (tensor<4x6xf32>, tensor<4x6xi32>) {
  %e = stablehlo.exponential %x : tensor<4x6xf32>
  %s:2 = "stablehlo.scatter"(%e, %z, %i, %u, %w) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 0>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<i32>, %c: tensor<f32>, %d: tensor<i32>):
    %p = stablehlo.compare GT, %c, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %q = stablehlo.select %p, %c, %a : tensor<i1>, tensor<f32>
    %r = stablehlo.select %p, %d, %b : tensor<i1>, tensor<i32>
    stablehlo.return %q, %r : tensor<f32>, tensor<i32>
  }) : (tensor<4x6xf32>, tensor<4x6xi32>, tensor<2x5xui8>, tensor<5xf32>, tensor<5xi32>) -> (tensor<4x6xf32>, tensor<4x6xi32>)
  %y = stablehlo.sine %s#0 : tensor<4x6xf32>
  %t = stablehlo.negate %s#1 : tensor<4x6xi32>
  return %y, %t : tensor<4x6xf32>, tensor<4x6xi32>
}

// -----
module {
  func.func public @main(%arg0: tensor<4x6xf32>, %arg1: tensor<4x6xi32>, %arg2: tensor<2x5xui8>, %arg3: tensor<5xf32>, %arg4: tensor<5xi32>) -> (tensor<4x6xf32>, tensor<4x6xi32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<4x6xf32>
    %c = stablehlo.constant dense<0> : tensor<4x6xi32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0:3 = stablehlo.while(%iterArg = %c_0, %iterArg_1 = %cst, %iterArg_2 = %c) : tensor<i32>, tensor<4x6xf32>, tensor<4x6xi32>
    cond {
      %c_3 = stablehlo.constant dense<2> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_3 = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_3 : tensor<i32>
      %c_4 = stablehlo.constant dense<0> : tensor<i32>
      %2 = stablehlo.dynamic_slice %arg0, %c_4, %1, sizes = [4, 3] : (tensor<4x6xf32>, tensor<i32>, tensor<i32>) -> tensor<4x3xf32>
      %3 = stablehlo.exponential %2 : tensor<4x3xf32>
      %c_5 = stablehlo.constant dense<0> : tensor<i32>
      %4 = stablehlo.dynamic_slice %arg1, %c_5, %1, sizes = [4, 3] : (tensor<4x6xi32>, tensor<i32>, tensor<i32>) -> tensor<4x3xi32>
      %5 = stablehlo.convert %arg2 : (tensor<2x5xui8>) -> tensor<2x5xi32>
      %c_6 = stablehlo.constant dense<-2147483642> : tensor<i32>
      %6 = stablehlo.broadcast_in_dim %c_6, dims = [] : (tensor<i32>) -> tensor<2x5xi32>
      %7 = stablehlo.maximum %5, %6 : tensor<2x5xi32>
      %c_7 = stablehlo.constant dense<1> : tensor<i32>
      %8 = stablehlo.multiply %1, %c_7 : tensor<i32>
      %9 = stablehlo.broadcast_in_dim %8, dims = [] : (tensor<i32>) -> tensor<2x5xi32>
      %10 = stablehlo.subtract %7, %9 : tensor<2x5xi32>
      %11 = stablehlo.iota dim = 0 : tensor<2x5xi32>
      %c_8 = stablehlo.constant dense<1> : tensor<i32>
      %12 = stablehlo.broadcast_in_dim %c_8, dims = [] : (tensor<i32>) -> tensor<2x5xi32>
      %13 = stablehlo.compare EQ, %11, %12 : (tensor<2x5xi32>, tensor<2x5xi32>) -> tensor<2x5xi1>
      %14 = stablehlo.select %13, %10, %5 : tensor<2x5xi1>, tensor<2x5xi32>
      %15:2 = "stablehlo.scatter"(%3, %4, %14, %arg3, %arg4) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1]>}> ({
      ^bb0(%arg5: tensor<f32>, %arg6: tensor<i32>, %arg7: tensor<f32>, %arg8: tensor<i32>):
        %21 = stablehlo.compare GT, %arg7, %arg5 : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %22 = stablehlo.select %21, %arg7, %arg5 : tensor<i1>, tensor<f32>
        %23 = stablehlo.select %21, %arg8, %arg6 : tensor<i1>, tensor<i32>
        stablehlo.return %22, %23 : tensor<f32>, tensor<i32>
      }) : (tensor<4x3xf32>, tensor<4x3xi32>, tensor<2x5xi32>, tensor<5xf32>, tensor<5xi32>) -> (tensor<4x3xf32>, tensor<4x3xi32>)
      %16 = stablehlo.sine %15#0 : tensor<4x3xf32>
      %c_9 = stablehlo.constant dense<0> : tensor<i32>
      %17 = stablehlo.dynamic_update_slice %iterArg_1, %16, %c_9, %1 : (tensor<4x6xf32>, tensor<4x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x6xf32>
      %18 = stablehlo.negate %15#1 : tensor<4x3xi32>
      %c_10 = stablehlo.constant dense<0> : tensor<i32>
      %19 = stablehlo.dynamic_update_slice %iterArg_2, %18, %c_10, %1 : (tensor<4x6xi32>, tensor<4x3xi32>, tensor<i32>, tensor<i32>) -> tensor<4x6xi32>
      %c_11 = stablehlo.constant dense<1> : tensor<i32>
      %20 = stablehlo.add %iterArg, %c_11 : tensor<i32>
      stablehlo.return %20, %17, %19 : tensor<i32>, tensor<4x6xf32>, tensor<4x6xi32>
    }
    return %0#1, %0#2 : tensor<4x6xf32>, tensor<4x6xi32>
  }
}
