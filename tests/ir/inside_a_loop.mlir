// split tanh along 0 by 2
// A split in a while's body: the weights come from outside, the carry is sliced.
func.func public @main(%x: tensor<6x3xf32>, %w: tensor<3x8xf32>) -> tensor<6x3xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<6x3xf32>
  cond {
    %n = stablehlo.constant dense<5> : tensor<i32>
    %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %h = stablehlo.dot_general %c, %w, contracting_dims = [1] x [0] : (tensor<6x3xf32>, tensor<3x8xf32>) -> tensor<6x8xf32>
    %t = stablehlo.tanh %h : tensor<6x8xf32>
    %d = stablehlo.dot_general %t, %w, contracting_dims = [1] x [1] : (tensor<6x8xf32>, tensor<3x8xf32>) -> tensor<6x3xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %d : tensor<i32>, tensor<6x3xf32>
  }
  return %r#1 : tensor<6x3xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x3xf32>, %arg1: tensor<3x8xf32>) -> tensor<6x3xf32> {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %c_0 = stablehlo.constant dense<5> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c_1, %iterArg_2 = %arg0) : tensor<i32>, tensor<6x3xf32>
    cond {
      %1 = stablehlo.compare LT, %iterArg, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<6x3xf32>
      %c_3 = stablehlo.constant dense<0> : tensor<i32>
      %1:2 = stablehlo.while(%iterArg_4 = %c_3, %iterArg_5 = %cst) : tensor<i32>, tensor<6x3xf32>
      cond {
        %c_6 = stablehlo.constant dense<3> : tensor<i32>
        %3 = stablehlo.compare LT, %iterArg_4, %c_6 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %3 : tensor<i1>
      } do {
        %c_6 = stablehlo.constant dense<2> : tensor<i32>
        %3 = stablehlo.multiply %iterArg_4, %c_6 : tensor<i32>
        %c_7 = stablehlo.constant dense<0> : tensor<i32>
        %4 = stablehlo.dynamic_slice %iterArg_2, %3, %c_7, sizes = [2, 3] : (tensor<6x3xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
        %5 = stablehlo.dot_general %4, %arg1, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3x8xf32>) -> tensor<2x8xf32>
        %6 = stablehlo.tanh %5 : tensor<2x8xf32>
        %7 = stablehlo.dot_general %6, %arg1, contracting_dims = [1] x [1] : (tensor<2x8xf32>, tensor<3x8xf32>) -> tensor<2x3xf32>
        %c_8 = stablehlo.constant dense<0> : tensor<i32>
        %8 = stablehlo.dynamic_update_slice %iterArg_5, %7, %3, %c_8 : (tensor<6x3xf32>, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<6x3xf32>
        %c_9 = stablehlo.constant dense<1> : tensor<i32>
        %9 = stablehlo.add %iterArg_4, %c_9 : tensor<i32>
        stablehlo.return %9, %8 : tensor<i32>, tensor<6x3xf32>
      }
      %2 = stablehlo.add %iterArg, %c : tensor<i32>
      stablehlo.return %2, %1#1 : tensor<i32>, tensor<6x3xf32>
    }
    return %0#1 : tensor<6x3xf32>
  }
}
