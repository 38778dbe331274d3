// rewrite matmul-chain
// In the body of a loop.
func.func public @main(%arg0: tensor<8x2xf32>, %arg1: tensor<2x8xf32>, %arg2: tensor<8xf32>) -> (tensor<8xf32>) {
  %c = stablehlo.constant dense<1> : tensor<i64>
  %c_0 = stablehlo.constant dense<3> : tensor<i64>
  %c_1 = stablehlo.constant dense<0> : tensor<i64>
  %0:4 = stablehlo.while(%iterArg = %arg0, %iterArg_2 = %arg1, %iterArg_3 = %c_1, %iterArg_4 = %arg2) : tensor<8x2xf32>, tensor<2x8xf32>, tensor<i64>, tensor<8xf32>
  cond {
    %1 = stablehlo.compare LT, %iterArg_3, %c_0, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dot_general %iterArg, %iterArg_2, contracting_dims = [1] x [0] : (tensor<8x2xf32>, tensor<2x8xf32>) -> tensor<8x8xf32>
    %2 = stablehlo.dot_general %1, %iterArg_4, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %3 = stablehlo.add %iterArg_3, %c : tensor<i64>
    stablehlo.return %iterArg, %iterArg_2, %3, %2 : tensor<8x2xf32>, tensor<2x8xf32>, tensor<i64>, tensor<8xf32>
  }
  return %0#3 : tensor<8xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x2xf32>, %arg1: tensor<2x8xf32>, %arg2: tensor<8xf32>) -> tensor<8xf32> {
    %c = stablehlo.constant dense<1> : tensor<i64>
    %c_0 = stablehlo.constant dense<3> : tensor<i64>
    %c_1 = stablehlo.constant dense<0> : tensor<i64>
    %0:4 = stablehlo.while(%iterArg = %arg0, %iterArg_2 = %arg1, %iterArg_3 = %c_1, %iterArg_4 = %arg2) : tensor<8x2xf32>, tensor<2x8xf32>, tensor<i64>, tensor<8xf32>
    cond {
      %1 = stablehlo.compare LT, %iterArg_3, %c_0, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = stablehlo.dot_general %iterArg_2, %iterArg_4, contracting_dims = [1] x [0] : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2xf32>
      %2 = stablehlo.dot_general %iterArg, %1, contracting_dims = [1] x [0] : (tensor<8x2xf32>, tensor<2xf32>) -> tensor<8xf32>
      %3 = stablehlo.add %iterArg_3, %c : tensor<i64>
      stablehlo.return %iterArg, %iterArg_2, %3, %2 : tensor<8x2xf32>, tensor<2x8xf32>, tensor<i64>, tensor<8xf32>
    }
    return %0#3 : tensor<8xf32>
  }
}
