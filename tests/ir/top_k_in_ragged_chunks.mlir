// split negate along 0 by 2
func.func public @main(%x: tensor<7xui8>) -> tensor<3xi32> {
  %y = stablehlo.negate %x : tensor<7xui8>
  %v, %i = chlo.top_k(%y, k = 3) : tensor<7xui8> -> (tensor<3xui8>, tensor<3xi32>)
  return %i : tensor<3xi32>
}

// -----
module {
  func.func public @main(%arg0: tensor<7xui8>) -> tensor<3xi32> {
    %c = stablehlo.constant dense<0> : tensor<3xui8>
    %c_0 = stablehlo.constant dense<-1> : tensor<3xi32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %0:3 = stablehlo.while(%iterArg = %c_1, %iterArg_2 = %c, %iterArg_3 = %c_0) : tensor<i32>, tensor<3xui8>, tensor<3xi32>
    cond {
      %c_4 = stablehlo.constant dense<4> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_4 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_4 = stablehlo.constant dense<2> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_4 : tensor<i32>
      %c_5 = stablehlo.constant dense<5> : tensor<i32>
      %2 = stablehlo.minimum %1, %c_5 : tensor<i32>
      %3 = stablehlo.subtract %1, %2 : tensor<i32>
      %4 = stablehlo.compare GT, %1, %c_5 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %5 = stablehlo.subtract %c_5, %2 : tensor<i32>
      %c_6 = stablehlo.constant dense<2> : tensor<i32>
      %6 = stablehlo.minimum %5, %c_6 : tensor<i32>
      %c_7 = stablehlo.constant dense<2> : tensor<i32>
      %7 = stablehlo.select %4, %c_7, %6 : tensor<i1>, tensor<i32>
      %c_8 = stablehlo.constant dense<0> : tensor<i32>
      %8 = stablehlo.dynamic_slice %arg0, %2, sizes = [2] : (tensor<7xui8>, tensor<i32>) -> tensor<2xui8>
      %9 = stablehlo.negate %8 : tensor<2xui8>
      %values, %indices = chlo.top_k(%9, k = 2) : tensor<2xui8> -> (tensor<2xui8>, tensor<2xi32>)
      %10 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<i32>) -> tensor<2xi32>
      %11 = stablehlo.add %indices, %10 : tensor<2xi32>
      %12 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<i32>) -> tensor<3xi32>
      %13 = stablehlo.compare LT, %iterArg_3, %12 : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi1>
      %c_9 = stablehlo.constant dense<-1> : tensor<3xi32>
      %14 = stablehlo.select %13, %iterArg_3, %c_9 : tensor<3xi1>, tensor<3xi32>
      %15 = stablehlo.concatenate %iterArg_2, %values, dim = 0 : (tensor<3xui8>, tensor<2xui8>) -> tensor<5xui8>
      %16 = stablehlo.concatenate %14, %11, dim = 0 : (tensor<3xi32>, tensor<2xi32>) -> tensor<5xi32>
      %17:2 = "stablehlo.sort"(%15, %16) <{dimension = 0 : i64, is_stable = true}> ({
      ^bb0(%arg1: tensor<ui8>, %arg2: tensor<ui8>, %arg3: tensor<i32>, %arg4: tensor<i32>):
        %c_11 = stablehlo.constant dense<0> : tensor<i32>
        %21 = stablehlo.compare GE, %arg3, %c_11 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %c_12 = stablehlo.constant dense<0> : tensor<i32>
        %22 = stablehlo.compare GE, %arg4, %c_12 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %23 = stablehlo.compare GT, %arg1, %arg2, UNSIGNED : (tensor<ui8>, tensor<ui8>) -> tensor<i1>
        %24 = stablehlo.compare EQ, %21, %22 : (tensor<i1>, tensor<i1>) -> tensor<i1>
        %25 = stablehlo.select %24, %23, %21 : tensor<i1>, tensor<i1>
        stablehlo.return %25 : tensor<i1>
      }) : (tensor<5xui8>, tensor<5xi32>) -> (tensor<5xui8>, tensor<5xi32>)
      %18 = stablehlo.slice %17#0 [0:3] : (tensor<5xui8>) -> tensor<3xui8>
      %19 = stablehlo.slice %17#1 [0:3] : (tensor<5xi32>) -> tensor<3xi32>
      %c_10 = stablehlo.constant dense<1> : tensor<i32>
      %20 = stablehlo.add %iterArg, %c_10 : tensor<i32>
      stablehlo.return %20, %18, %19 : tensor<i32>, tensor<3xui8>, tensor<3xi32>
    }
    return %0#2 : tensor<3xi32>
  }
}
