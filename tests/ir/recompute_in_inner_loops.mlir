// recompute-in-loops
// Where the inner loop is what reads it, and uses it without a carry.
func.func public @main(%x: tensor<6x6xf32>, %v: tensor<6xf32>) -> tensor<6xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %nine = stablehlo.constant dense<9> : tensor<i32>
  %k = stablehlo.tanh %x : tensor<6x6xf32>
  %0:3 = stablehlo.while(%i = %zero, %m = %k, %y = %v) : tensor<i32>, tensor<6x6xf32>, tensor<6xf32>
  cond {
    %c = stablehlo.compare LT, %i, %nine : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %4:2 = stablehlo.while(%j = %zero, %z = %y) : tensor<i32>, tensor<6xf32>
    cond {
      %c = stablehlo.compare LT, %j, %nine : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %1 = stablehlo.dot_general %m, %z, contracting_dims = [1] x [0] : (tensor<6x6xf32>, tensor<6xf32>) -> tensor<6xf32>
      %3 = stablehlo.add %j, %one : tensor<i32>
      stablehlo.return %3, %1 : tensor<i32>, tensor<6xf32>
    }
    %5 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %5, %m, %4#1 : tensor<i32>, tensor<6x6xf32>, tensor<6xf32>
  }
  return %0#2 : tensor<6xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x6xf32>, %arg1: tensor<6xf32>) -> tensor<6xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %c_1 = stablehlo.constant dense<9> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg1) : tensor<i32>, tensor<6xf32>
    cond {
      %1 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1:2 = stablehlo.while(%iterArg_3 = %c, %iterArg_4 = %iterArg_2) : tensor<i32>, tensor<6xf32>
      cond {
        %3 = stablehlo.compare LT, %iterArg_3, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %3 : tensor<i1>
      } do {
        %3 = stablehlo.tanh %arg0 : tensor<6x6xf32>
        %4 = stablehlo.dot_general %3, %iterArg_4, contracting_dims = [1] x [0] : (tensor<6x6xf32>, tensor<6xf32>) -> tensor<6xf32>
        %5 = stablehlo.add %iterArg_3, %c_0 : tensor<i32>
        stablehlo.return %5, %4 : tensor<i32>, tensor<6xf32>
      }
      %2 = stablehlo.add %iterArg, %c_0 : tensor<i32>
      stablehlo.return %2, %1#1 : tensor<i32>, tensor<6xf32>
    }
    return %0#1 : tensor<6xf32>
  }
}
