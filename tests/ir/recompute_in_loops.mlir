// recompute-in-loops
// A kernel matrix for power iterations: two results of the loop are one value each, the loop hands on what it is given.
func.func public @main(%x: tensor<6x4xf32>, %v: tensor<6xf32>) -> (tensor<6xf32>, tensor<6x6xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %nine = stablehlo.constant dense<9> : tensor<i32>
  %d = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : (tensor<6x4xf32>, tensor<6x4xf32>) -> tensor<6x6xf32>
  %k = stablehlo.exponential %d : tensor<6x6xf32>
  %0:3 = stablehlo.while(%i = %zero, %m = %k, %y = %v) : tensor<i32>, tensor<6x6xf32>, tensor<6xf32>
  cond {
    %c = stablehlo.compare LT, %i, %nine : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %1 = stablehlo.dot_general %m, %y, contracting_dims = [1] x [0] : (tensor<6x6xf32>, tensor<6xf32>) -> tensor<6xf32>
    %2 = stablehlo.tanh %1 : tensor<6xf32>
    %3 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %3, %m, %2 : tensor<i32>, tensor<6x6xf32>, tensor<6xf32>
  }
  return %0#2, %0#1 : tensor<6xf32>, tensor<6x6xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x4xf32>, %arg1: tensor<6xf32>) -> (tensor<6xf32>, tensor<6x6xf32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %c_1 = stablehlo.constant dense<9> : tensor<i32>
    %0 = stablehlo.dot_general %arg0, %arg0, contracting_dims = [1] x [1] : (tensor<6x4xf32>, tensor<6x4xf32>) -> tensor<6x6xf32>
    %1 = stablehlo.exponential %0 : tensor<6x6xf32>
    %2:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg1) : tensor<i32>, tensor<6xf32>
    cond {
      %3 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %3 = stablehlo.dot_general %arg0, %arg0, contracting_dims = [1] x [1] : (tensor<6x4xf32>, tensor<6x4xf32>) -> tensor<6x6xf32>
      %4 = stablehlo.exponential %3 : tensor<6x6xf32>
      %5 = stablehlo.dot_general %4, %iterArg_2, contracting_dims = [1] x [0] : (tensor<6x6xf32>, tensor<6xf32>) -> tensor<6xf32>
      %6 = stablehlo.tanh %5 : tensor<6xf32>
      %7 = stablehlo.add %iterArg, %c_0 : tensor<i32>
      stablehlo.return %7, %6 : tensor<i32>, tensor<6xf32>
    }
    return %2#1, %1 : tensor<6xf32>, tensor<6x6xf32>
  }
}
