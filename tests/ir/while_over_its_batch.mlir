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
      %4 = stablehlo.compare GT, %1, %c_8 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %5 = stablehlo.subtract %c_8, %2 : tensor<i32>
      %c_9 = stablehlo.constant dense<4> : tensor<i32>
      %6 = stablehlo.minimum %5, %c_9 : tensor<i32>
      %c_10 = stablehlo.constant dense<4> : tensor<i32>
      %7 = stablehlo.select %4, %c_10, %6 : tensor<i1>, tensor<i32>
      %8 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4x3xf32>
      %9 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<5x4x3xf32>
      %c_11 = stablehlo.constant dense<0> : tensor<i32>
      %10 = stablehlo.compare EQ, %2, %c_11 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %cst_12 = stablehlo.constant dense<0.000000e+00> : tensor<3x3xf32>
      %11 = stablehlo.select %10, %arg2, %cst_12 : tensor<i1>, tensor<3x3xf32>
      %c_13 = stablehlo.constant dense<0> : tensor<i32>
      %12 = stablehlo.dynamic_slice %arg0, %c_13, %2, %c_13, sizes = [5, 4, 3] : (tensor<5x6x3xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<5x4x3xf32>
      %13:4 = stablehlo.while(%iterArg_16 = %c_1, %iterArg_17 = %8, %iterArg_18 = %9, %iterArg_19 = %11) : tensor<i32>, tensor<4x3xf32>, tensor<5x4x3xf32>, tensor<3x3xf32>
      cond {
        %19 = stablehlo.compare LT, %iterArg_16, %c_0 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %19 : tensor<i1>
      } do {
        %19 = stablehlo.dynamic_slice %12, %iterArg_16, %c_1, %c_1, sizes = [1, 4, 3] : (tensor<5x4x3xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x3xf32>
        %20 = stablehlo.reshape %19 : (tensor<1x4x3xf32>) -> tensor<4x3xf32>
        %21 = stablehlo.dot_general %iterArg_17, %arg1, contracting_dims = [1] x [0] : (tensor<4x3xf32>, tensor<3x3xf32>) -> tensor<4x3xf32>
        %22 = stablehlo.add %21, %20 : tensor<4x3xf32>
        %23 = stablehlo.reshape %22 : (tensor<4x3xf32>) -> tensor<1x4x3xf32>
        %24 = stablehlo.dynamic_update_slice %iterArg_18, %23, %iterArg_16, %c_1, %c_1 : (tensor<5x4x3xf32>, tensor<1x4x3xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<5x4x3xf32>
        %cst_20 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
        %25 = stablehlo.broadcast_in_dim %cst_20, dims = [] : (tensor<f32>) -> tensor<4x3xf32>
        %26 = stablehlo.iota dim = 0 : tensor<4xi32>
        %27 = stablehlo.broadcast_in_dim %7, dims = [] : (tensor<i32>) -> tensor<4xi32>
        %28 = stablehlo.compare LT, %26, %27 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
        %29 = stablehlo.broadcast_in_dim %28, dims = [0] : (tensor<4xi1>) -> tensor<4x3xi1>
        %30 = stablehlo.select %29, %iterArg_17, %25 : tensor<4x3xi1>, tensor<4x3xf32>
        %cst_21 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
        %31 = stablehlo.broadcast_in_dim %cst_21, dims = [] : (tensor<f32>) -> tensor<4x3xf32>
        %32 = stablehlo.iota dim = 0 : tensor<4xi32>
        %33 = stablehlo.broadcast_in_dim %7, dims = [] : (tensor<i32>) -> tensor<4xi32>
        %34 = stablehlo.compare LT, %32, %33 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
        %35 = stablehlo.broadcast_in_dim %34, dims = [0] : (tensor<4xi1>) -> tensor<4x3xi1>
        %36 = stablehlo.select %35, %22, %31 : tensor<4x3xi1>, tensor<4x3xf32>
        %37 = stablehlo.dot_general %30, %36, contracting_dims = [0] x [0] : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<3x3xf32>
        %38 = stablehlo.add %iterArg_19, %37 : tensor<3x3xf32>
        %39 = stablehlo.add %iterArg_16, %c : tensor<i32>
        stablehlo.return %39, %22, %24, %38 : tensor<i32>, tensor<4x3xf32>, tensor<5x4x3xf32>, tensor<3x3xf32>
      }
      %14 = stablehlo.add %iterArg_5, %13#3 : tensor<3x3xf32>
      %15 = stablehlo.exponential %13#2 : tensor<5x4x3xf32>
      %16 = stablehlo.reduce(%15 init: %cst) applies stablehlo.add across dimensions = [0, 2] : (tensor<5x4x3xf32>, tensor<f32>) -> tensor<4xf32>
      %c_14 = stablehlo.constant dense<0> : tensor<i32>
      %17 = stablehlo.dynamic_update_slice %iterArg_6, %16, %2 : (tensor<6xf32>, tensor<4xf32>, tensor<i32>) -> tensor<6xf32>
      %c_15 = stablehlo.constant dense<1> : tensor<i32>
      %18 = stablehlo.add %iterArg, %c_15 : tensor<i32>
      stablehlo.return %18, %14, %17 : tensor<i32>, tensor<3x3xf32>, tensor<6xf32>
    }
    return %0#1, %0#2 : tensor<3x3xf32>, tensor<6xf32>
  }
}
