// split exponential along 1 by 4
// A scan over time, split over its batch as a whole: states and stacked results are chunks, the counter and the
// weights are not; the weights' gradient, which sums over the batch in every step, adds up over the chunks.
func.func public @main(%x: tensor<5x6x3xf32>, %w: tensor<3x3xf32>, %g: tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<6xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %f = stablehlo.constant dense<0.0> : tensor<f32>
  %h = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<6x3xf32>
  %s = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<5x6x3xf32>
  %r:4 = stablehlo.while(%i = %zero, %c = %h, %ys = %s, %acc = %g) : tensor<i32>, tensor<6x3xf32>, tensor<5x6x3xf32>, tensor<3x3xf32>
  cond {
    %n = stablehlo.constant dense<5> : tensor<i32>
    %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %xt = stablehlo.dynamic_slice %x, %i, %zero, %zero, sizes = [1, 6, 3] : (tensor<5x6x3xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x6x3xf32>
    %row = stablehlo.reshape %xt : (tensor<1x6x3xf32>) -> tensor<6x3xf32>
    %p = stablehlo.dot_general %c, %w, contracting_dims = [1] x [0] : (tensor<6x3xf32>, tensor<3x3xf32>) -> tensor<6x3xf32>
    %t = stablehlo.add %p, %row : tensor<6x3xf32>
    %y = stablehlo.reshape %t : (tensor<6x3xf32>) -> tensor<1x6x3xf32>
    %all = stablehlo.dynamic_update_slice %ys, %y, %i, %zero, %zero : (tensor<5x6x3xf32>, tensor<1x6x3xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<5x6x3xf32>
    %d = stablehlo.dot_general %c, %t, contracting_dims = [0] x [0] : (tensor<6x3xf32>, tensor<6x3xf32>) -> tensor<3x3xf32>
    %sum = stablehlo.add %acc, %d : tensor<3x3xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %j, %t, %all, %sum : tensor<i32>, tensor<6x3xf32>, tensor<5x6x3xf32>, tensor<3x3xf32>
  }
  %e = stablehlo.exponential %r#2 : tensor<5x6x3xf32>
  %q = stablehlo.reduce(%e init: %f) applies stablehlo.add across dimensions = [0, 2] : (tensor<5x6x3xf32>, tensor<f32>) -> tensor<6xf32>
  return %r#3, %q : tensor<3x3xf32>, tensor<6xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<5x6x3xf32>, %arg1: tensor<3x3xf32>, %arg2: tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<6xf32>) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %c_0 = stablehlo.constant dense<5> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<3x3xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<6xf32>
    %c_4 = stablehlo.constant dense<0> : tensor<i32>
    %0:3 = stablehlo.while(%iterArg = %c_4, %iterArg_5 = %cst_2, %iterArg_6 = %cst_3) : tensor<i32>, tensor<3x3xf32>, tensor<6xf32>
    cond {
      %c_7 = stablehlo.constant dense<2> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_7 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %c_7 = stablehlo.constant dense<4> : tensor<i32>
      %1 = stablehlo.multiply %iterArg, %c_7 : tensor<i32>
      %c_8 = stablehlo.constant dense<2> : tensor<i32>
      %2 = stablehlo.minimum %1, %c_8 : tensor<i32>
      %3 = stablehlo.subtract %1, %2 : tensor<i32>
      %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x3xf32>
      %5 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<5x4x3xf32>
      %c_9 = stablehlo.constant dense<0> : tensor<i32>
      %6 = stablehlo.compare EQ, %2, %c_9 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %cst_10 = stablehlo.constant dense<0.000000e+00> : tensor<3x3xf32>
      %7 = stablehlo.select %6, %arg2, %cst_10 : tensor<i1>, tensor<3x3xf32>
      %c_11 = stablehlo.constant dense<0> : tensor<i32>
      %8 = stablehlo.dynamic_slice %arg0, %c_11, %2, %c_11, sizes = [5, 4, 3] : (tensor<5x6x3xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<5x4x3xf32>
      %9:4 = stablehlo.while(%iterArg_14 = %c_1, %iterArg_15 = %4, %iterArg_16 = %5, %iterArg_17 = %7) : tensor<i32>, tensor<4x3xf32>, tensor<5x4x3xf32>, tensor<3x3xf32>
      cond {
        %15 = stablehlo.compare LT, %iterArg_14, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %15 : tensor<i1>
      } do {
        %15 = stablehlo.dynamic_slice %8, %iterArg_14, %c_1, %c_1, sizes = [1, 4, 3] : (tensor<5x4x3xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x3xf32>
        %16 = stablehlo.reshape %15 : (tensor<1x4x3xf32>) -> tensor<4x3xf32>
        %17 = stablehlo.dot_general %iterArg_15, %arg1, contracting_dims = [1] x [0] : (tensor<4x3xf32>, tensor<3x3xf32>) -> tensor<4x3xf32>
        %18 = stablehlo.add %17, %16 : tensor<4x3xf32>
        %19 = stablehlo.reshape %18 : (tensor<4x3xf32>) -> tensor<1x4x3xf32>
        %20 = stablehlo.dynamic_update_slice %iterArg_16, %19, %iterArg_14, %c_1, %c_1 : (tensor<5x4x3xf32>, tensor<1x4x3xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<5x4x3xf32>
        %cst_18 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
        %21 = stablehlo.iota dim = 0 : tensor<4xi32>
        %22 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<i32>) -> tensor<4xi32>
        %23 = stablehlo.compare GE, %21, %22 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
        %24 = stablehlo.broadcast_in_dim %23, dims = [0] : (tensor<4xi1>) -> tensor<4x3xi1>
        %25 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<4x3xf32>
        %26 = stablehlo.select %24, %iterArg_15, %25 : tensor<4x3xi1>, tensor<4x3xf32>
        %cst_19 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
        %27 = stablehlo.iota dim = 0 : tensor<4xi32>
        %28 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<i32>) -> tensor<4xi32>
        %29 = stablehlo.compare GE, %27, %28 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
        %30 = stablehlo.broadcast_in_dim %29, dims = [0] : (tensor<4xi1>) -> tensor<4x3xi1>
        %31 = stablehlo.broadcast_in_dim %cst_19, dims = [] : (tensor<f32>) -> tensor<4x3xf32>
        %32 = stablehlo.select %30, %18, %31 : tensor<4x3xi1>, tensor<4x3xf32>
        %33 = stablehlo.dot_general %26, %32, contracting_dims = [0] x [0] : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<3x3xf32>
        %34 = stablehlo.add %iterArg_17, %33 : tensor<3x3xf32>
        %35 = stablehlo.add %iterArg_14, %c : tensor<i32>
        stablehlo.return %35, %18, %20, %34 : tensor<i32>, tensor<4x3xf32>, tensor<5x4x3xf32>, tensor<3x3xf32>
      }
      %10 = stablehlo.exponential %9#2 : tensor<5x4x3xf32>
      %11 = stablehlo.reduce(%10 init: %cst) applies stablehlo.add across dimensions = [0, 2] : (tensor<5x4x3xf32>, tensor<f32>) -> tensor<4xf32>
      %12 = stablehlo.add %iterArg_5, %9#3 : tensor<3x3xf32>
      %c_12 = stablehlo.constant dense<0> : tensor<i32>
      %13 = stablehlo.dynamic_update_slice %iterArg_6, %11, %2 : (tensor<6xf32>, tensor<4xf32>, tensor<i32>) -> tensor<6xf32>
      %c_13 = stablehlo.constant dense<1> : tensor<i32>
      %14 = stablehlo.add %iterArg, %c_13 : tensor<i32>
      stablehlo.return %14, %12, %13 : tensor<i32>, tensor<3x3xf32>, tensor<6xf32>
    }
    return %0#1, %0#2 : tensor<3x3xf32>, tensor<6xf32>
  }
}
