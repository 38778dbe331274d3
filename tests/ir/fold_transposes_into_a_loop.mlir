// rewrite fold-transposes
// The carry %t that only hands the transposed value on gets a constant instead; %s is captured.
func.func public @main(%x: tensor<64x8xf32>, %y: tensor<32x8xf32>, %z: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %four = stablehlo.constant dense<4> : tensor<i32>
  %0 = stablehlo.transpose %y, dims = [1, 0] : (tensor<32x8xf32>) -> tensor<8x32xf32>
  %s = stablehlo.transpose %x, dims = [1, 0] : (tensor<64x8xf32>) -> tensor<8x64xf32>
  %w:3 = stablehlo.while(%i = %zero, %t = %0, %a = %z) : tensor<i32>, tensor<8x32xf32>, tensor<64x64xf32>
  cond {
    %c = stablehlo.compare LT, %i, %four, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %1 = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0] : (tensor<64x8xf32>, tensor<8x32xf32>) -> tensor<64x32xf32>
    %2 = stablehlo.dot_general %1, %t, contracting_dims = [1] x [1] : (tensor<64x32xf32>, tensor<8x32xf32>) -> tensor<64x8xf32>
    %3 = stablehlo.dot_general %2, %s, contracting_dims = [1] x [0] : (tensor<64x8xf32>, tensor<8x64xf32>) -> tensor<64x64xf32>
    %4 = stablehlo.add %a, %3 : tensor<64x64xf32>
    %5 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %5, %t, %4 : tensor<i32>, tensor<8x32xf32>, tensor<64x64xf32>
  }
  return %w#2 : tensor<64x64xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<64x8xf32>, %arg1: tensor<32x8xf32>, %arg2: tensor<64x64xf32>) -> tensor<64x64xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %c_1 = stablehlo.constant dense<4> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<8x32xf32>
    %0:3 = stablehlo.while(%iterArg = %c, %iterArg_2 = %cst, %iterArg_3 = %arg2) : tensor<i32>, tensor<8x32xf32>, tensor<64x64xf32>
    cond {
      %1 = stablehlo.compare LT, %iterArg, %c_1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [1] : (tensor<64x8xf32>, tensor<32x8xf32>) -> tensor<64x32xf32>
      %2 = stablehlo.dot_general %1, %arg1, contracting_dims = [1] x [0] : (tensor<64x32xf32>, tensor<32x8xf32>) -> tensor<64x8xf32>
      %3 = stablehlo.dot_general %2, %arg0, contracting_dims = [1] x [1] : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x64xf32>
      %4 = stablehlo.add %iterArg_3, %3 : tensor<64x64xf32>
      %5 = stablehlo.add %iterArg, %c_0 : tensor<i32>
      stablehlo.return %5, %iterArg_2, %4 : tensor<i32>, tensor<8x32xf32>, tensor<64x64xf32>
    }
    return %0#2 : tensor<64x64xf32>
  }
}
