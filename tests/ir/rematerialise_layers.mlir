// rematerialise
// Three layers h + tanh(h w): the backward loop computes tanh again from the rows of h, which are stored instead.
func.func public @main(%w: tensor<3x4x4xf32>, %x: tensor<8x4xf32>, %g: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %init = stablehlo.constant dense<0.0> : tensor<3x8x4xf32>
  %0:4 = stablehlo.while(%i = %zero, %h = %x, %t = %init, %s = %init) : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>, tensor<3x8x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %w, %i, %zero, %zero, sizes = [1, 4, 4] : (tensor<3x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
    %3 = stablehlo.dot_general %h, %2, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
    %4 = stablehlo.tanh %3 : tensor<8x4xf32>
    %5 = stablehlo.add %h, %4 : tensor<8x4xf32>
    %6 = stablehlo.reshape %4 : (tensor<8x4xf32>) -> tensor<1x8x4xf32>
    %7 = stablehlo.dynamic_update_slice %t, %6, %i, %zero, %zero : (tensor<3x8x4xf32>, tensor<1x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x8x4xf32>
    %8 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %8, %5, %7, %s : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>, tensor<3x8x4xf32>
  }
  %9:3 = stablehlo.while(%i = %zero, %d = %g, %t = %0#2) : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %10 = stablehlo.subtract %three, %i : tensor<i32>
    %11 = stablehlo.subtract %10, %one : tensor<i32>
    %12 = stablehlo.dynamic_slice %t, %11, %zero, %zero, sizes = [1, 8, 4] : (tensor<3x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x4xf32>
    %13 = stablehlo.reshape %12 : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
    %14 = stablehlo.multiply %d, %13 : tensor<8x4xf32>
    %15 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %15, %14, %t : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>
  }
  return %0#1, %9#1 : tensor<8x4xf32>, tensor<8x4xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<3x4x4xf32>, %arg1: tensor<8x4xf32>, %arg2: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %c_1 = stablehlo.constant dense<3> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<3x8x4xf32>
    %1:3 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg1, %iterArg_3 = %0) : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>
    cond {
      %3 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %3 = stablehlo.dynamic_slice %arg0, %iterArg, %c, %c, sizes = [1, 4, 4] : (tensor<3x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
      %4 = stablehlo.reshape %3 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
      %5 = stablehlo.dot_general %iterArg_2, %4, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
      %6 = stablehlo.tanh %5 : tensor<8x4xf32>
      %7 = stablehlo.add %iterArg_2, %6 : tensor<8x4xf32>
      %8 = stablehlo.add %iterArg, %c_0 : tensor<i32>
      %9 = stablehlo.reshape %iterArg_2 : (tensor<8x4xf32>) -> tensor<1x8x4xf32>
      %10 = stablehlo.dynamic_update_slice %iterArg_3, %9, %iterArg, %c, %c : (tensor<3x8x4xf32>, tensor<1x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x8x4xf32>
      stablehlo.return %8, %7, %10 : tensor<i32>, tensor<8x4xf32>, tensor<3x8x4xf32>
    }
    %2:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %arg2) : tensor<i32>, tensor<8x4xf32>
    cond {
      %3 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %3 = stablehlo.subtract %c_1, %iterArg : tensor<i32>
      %4 = stablehlo.subtract %3, %c_0 : tensor<i32>
      %5 = stablehlo.dynamic_slice %1#2, %4, %c, %c, sizes = [1, 8, 4] : (tensor<3x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x4xf32>
      %6 = stablehlo.reshape %5 : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
      %7 = stablehlo.dynamic_slice %arg0, %4, %c, %c, sizes = [1, 4, 4] : (tensor<3x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
      %8 = stablehlo.reshape %7 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
      %9 = stablehlo.dot_general %6, %8, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
      %10 = stablehlo.tanh %9 : tensor<8x4xf32>
      %11 = stablehlo.reshape %10 : (tensor<8x4xf32>) -> tensor<1x8x4xf32>
      %12 = stablehlo.reshape %11 : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
      %13 = stablehlo.multiply %iterArg_2, %12 : tensor<8x4xf32>
      %14 = stablehlo.add %iterArg, %c_0 : tensor<i32>
      stablehlo.return %14, %13 : tensor<i32>, tensor<8x4xf32>
    }
    return %1#1, %2#1 : tensor<8x4xf32>, tensor<8x4xf32>
  }
}
