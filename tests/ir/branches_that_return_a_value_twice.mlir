// split sine along 0 by 2
// One value is two results of a branch: by chunk where a chunk is wanted, whole where all of it is.
func.func public @main(%x: tensor<f32>, %p: tensor<i32>) -> (tensor<f32>, tensor<6x6xf32>) {
  %f = stablehlo.constant dense<0.0> : tensor<f32>
  %r:2 = "stablehlo.case"(%p) ({
    %z = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<6x6xf32>
    stablehlo.return %z, %z : tensor<6x6xf32>, tensor<6x6xf32>
  }, {
    %z = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<6x6xf32>
    stablehlo.return %z, %z : tensor<6x6xf32>, tensor<6x6xf32>
  }) : (tensor<i32>) -> (tensor<6x6xf32>, tensor<6x6xf32>)
  %s = stablehlo.sine %r#0 : tensor<6x6xf32>
  %t = stablehlo.reduce(%s init: %f) applies stablehlo.add across dimensions = [0, 1] : (tensor<6x6xf32>, tensor<f32>) -> tensor<f32>
  %o = "stablehlo.sort"(%r#1) <{dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) : (tensor<6x6xf32>) -> tensor<6x6xf32>
  return %t, %o : tensor<f32>, tensor<6x6xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<f32>, %arg1: tensor<i32>) -> (tensor<f32>, tensor<6x6xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<6x6xf32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<f32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1:3 = stablehlo.while(%iterArg = %c, %iterArg_1 = %cst_0, %iterArg_2 = %0) : tensor<i32>, tensor<6x6xf32>, tensor<f32>
    cond {
      %c_3 = stablehlo.constant dense<3> : tensor<i32>
      %3 = stablehlo.compare LT, %iterArg, %c_3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %c_3 = stablehlo.constant dense<2> : tensor<i32>
      %3 = stablehlo.multiply %iterArg, %c_3 : tensor<i32>
      %4:2 = "stablehlo.case"(%arg1) ({
        %9 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<6x6xf32>
        %10 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x6xf32>
        stablehlo.return %10, %9 : tensor<2x6xf32>, tensor<6x6xf32>
      }, {
        %9 = stablehlo.broadcast_in_dim %arg0, dims = [] : (tensor<f32>) -> tensor<6x6xf32>
        %10 = stablehlo.broadcast_in_dim %arg0, dims = [] : (tensor<f32>) -> tensor<2x6xf32>
        stablehlo.return %10, %9 : tensor<2x6xf32>, tensor<6x6xf32>
      }) : (tensor<i32>) -> (tensor<2x6xf32>, tensor<6x6xf32>)
      %5 = stablehlo.sine %4#0 : tensor<2x6xf32>
      %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %6 = stablehlo.reduce(%5 init: %cst_4) applies stablehlo.add across dimensions = [0, 1] : (tensor<2x6xf32>, tensor<f32>) -> tensor<f32>
      %7 = stablehlo.add %iterArg_2, %6 : tensor<f32>
      %c_5 = stablehlo.constant dense<1> : tensor<i32>
      %8 = stablehlo.add %iterArg, %c_5 : tensor<i32>
      stablehlo.return %8, %4#1, %7 : tensor<i32>, tensor<6x6xf32>, tensor<f32>
    }
    %2 = "stablehlo.sort"(%1#1) <{dimension = 0 : i64}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %3 = stablehlo.compare LT, %arg2, %arg3 : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    }) : (tensor<6x6xf32>) -> tensor<6x6xf32>
    return %1#2, %2 : tensor<f32>, tensor<6x6xf32>
  }
}
