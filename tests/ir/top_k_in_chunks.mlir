// split negate along 1 by 4
func.func public @main(%x: tensor<3x8xf32>) -> (tensor<3x2xf32>, tensor<3x2xi32>) {
  %y = stablehlo.negate %x : tensor<3x8xf32>
  %v, %i = chlo.top_k(%y, k = 2) : tensor<3x8xf32> -> (tensor<3x2xf32>, tensor<3x2xi32>)
  return %v, %i : tensor<3x2xf32>, tensor<3x2xi32>
}

// -----
module {
  func.func public @main(%arg0: tensor<3x8xf32>) -> (tensor<3x2xf32>, tensor<3x2xi32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<3x2xf32>
    %c = stablehlo.constant dense<-1> : tensor<3x2xi32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0:3 = stablehlo.while(%iterArg = %c_0, %iterArg_1 = %cst, %iterArg_2 = %c) : tensor<i32>, tensor<3x2xf32>, tensor<3x2xi32>
    cond {
      %c_3 = stablehlo.constant dense<2> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_3 = stablehlo.constant dense<4> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_3 : tensor<i32>
      %c_4 = stablehlo.constant dense<0> : tensor<i32>
      %2 = stablehlo.dynamic_slice %arg0, %c_4, %1, sizes = [3, 4] : (tensor<3x8xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
      %3 = stablehlo.negate %2 : tensor<3x4xf32>
      %values, %indices = chlo.top_k(%3, k = 2) : tensor<3x4xf32> -> (tensor<3x2xf32>, tensor<3x2xi32>)
      %4 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<i32>) -> tensor<3x2xi32>
      %5 = stablehlo.add %indices, %4 : tensor<3x2xi32>
      %6 = stablehlo.concatenate %iterArg_1, %values, dim = 1 : (tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<3x4xf32>
      %7 = stablehlo.concatenate %iterArg_2, %5, dim = 1 : (tensor<3x2xi32>, tensor<3x2xi32>) -> tensor<3x4xi32>
      %8:2 = "stablehlo.sort"(%6, %7) <{dimension = 1 : i64, is_stable = true}> ({
      ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>, %arg3: tensor<i32>, %arg4: tensor<i32>):
        %c_6 = stablehlo.constant dense<0> : tensor<i32>
        %12 = stablehlo.compare GE, %arg3, %c_6 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %c_7 = stablehlo.constant dense<0> : tensor<i32>
        %13 = stablehlo.compare GE, %arg4, %c_7 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %14 = stablehlo.compare GT, %arg1, %arg2, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %15 = stablehlo.compare EQ, %12, %13 : (tensor<i1>, tensor<i1>) -> tensor<i1>
        %16 = stablehlo.select %15, %14, %12 : tensor<i1>, tensor<i1>
        stablehlo.return %16 : tensor<i1>
      }) : (tensor<3x4xf32>, tensor<3x4xi32>) -> (tensor<3x4xf32>, tensor<3x4xi32>)
      %9 = stablehlo.slice %8#0 [0:3, 0:2] : (tensor<3x4xf32>) -> tensor<3x2xf32>
      %10 = stablehlo.slice %8#1 [0:3, 0:2] : (tensor<3x4xi32>) -> tensor<3x2xi32>
      %c_5 = stablehlo.constant dense<1> : tensor<i32>
      %11 = stablehlo.add %iterArg, %c_5 : tensor<i32>
      stablehlo.return %11, %9, %10 : tensor<i32>, tensor<3x2xf32>, tensor<3x2xi32>
    }
    return %0#1, %0#2 : tensor<3x2xf32>, tensor<3x2xi32>
  }
}
