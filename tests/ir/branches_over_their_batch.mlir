// split sine along 0 by 2
// A case whose branches capture a value by chunk; one of them returns a sum over the axis, the other a whole value,
// which counts in the first chunk only.
func.func public @main(%x: tensor<6x3xf32>, %b: tensor<3xf32>, %p: tensor<i32>) -> (tensor<3xf32>, tensor<6xf32>) {
  %f = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.sine %x : tensor<6x3xf32>
  %r:2 = "stablehlo.case"(%p) ({
    %e = stablehlo.exponential %s : tensor<6x3xf32>
    %t = stablehlo.reduce(%e init: %f) applies stablehlo.add across dimensions = [0] : (tensor<6x3xf32>, tensor<f32>) -> tensor<3xf32>
    %q = stablehlo.reduce(%e init: %f) applies stablehlo.add across dimensions = [1] : (tensor<6x3xf32>, tensor<f32>) -> tensor<6xf32>
    stablehlo.return %t, %q : tensor<3xf32>, tensor<6xf32>
  }, {
    %z = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<6xf32>
    stablehlo.return %b, %z : tensor<3xf32>, tensor<6xf32>
  }) : (tensor<i32>) -> (tensor<3xf32>, tensor<6xf32>)
  return %r#0, %r#1 : tensor<3xf32>, tensor<6xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x3xf32>, %arg1: tensor<3xf32>, %arg2: tensor<i32>) -> (tensor<3xf32>, tensor<6xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<3xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<6xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:3 = stablehlo.while(%iterArg = %c, %iterArg_2 = %cst_0, %iterArg_3 = %cst_1) : tensor<i32>, tensor<3xf32>, tensor<6xf32>
    cond {
      %c_4 = stablehlo.constant dense<3> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_4 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_4 = stablehlo.constant dense<2> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_4 : tensor<i32>
      %c_5 = stablehlo.constant dense<0> : tensor<i32>
      %2 = stablehlo.dynamic_slice %arg0, %1, %c_5, sizes = [2, 3] : (tensor<6x3xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
      %3 = stablehlo.sine %2 : tensor<2x3xf32>
      %4:2 = "stablehlo.case"(%arg2) ({
        %8 = stablehlo.exponential %3 : tensor<2x3xf32>
        %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
        %9 = stablehlo.reduce(%8 init: %cst_8) applies stablehlo.add across dimensions = [0] : (tensor<2x3xf32>, tensor<f32>) -> tensor<3xf32>
        %10 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<3xf32>
        %11 = stablehlo.add %10, %9 : tensor<3xf32>
        %12 = stablehlo.reduce(%8 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
        stablehlo.return %11, %12 : tensor<3xf32>, tensor<2xf32>
      }, {
        %8 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2xf32>
        %c_8 = stablehlo.constant dense<0> : tensor<i32>
        %9 = stablehlo.compare EQ, %1, %c_8 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<3xf32>
        %10 = stablehlo.select %9, %arg1, %cst_9 : tensor<i1>, tensor<3xf32>
        stablehlo.return %10, %8 : tensor<3xf32>, tensor<2xf32>
      }) : (tensor<i32>) -> (tensor<3xf32>, tensor<2xf32>)
      %5 = stablehlo.add %iterArg_2, %4#0 : tensor<3xf32>
      %c_6 = stablehlo.constant dense<0> : tensor<i32>
      %6 = stablehlo.dynamic_update_slice %iterArg_3, %4#1, %1 : (tensor<6xf32>, tensor<2xf32>, tensor<i32>) -> tensor<6xf32>
      %c_7 = stablehlo.constant dense<1> : tensor<i32>
      %7 = stablehlo.add %iterArg, %c_7 : tensor<i32>
      stablehlo.return %7, %5, %6 : tensor<i32>, tensor<3xf32>, tensor<6xf32>
    }
    return %0#1, %0#2 : tensor<3xf32>, tensor<6xf32>
  }
}
