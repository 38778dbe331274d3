// split exponential along 1 by 4
// The reducer, made to work on whole tensors, combines what the chunks found; 7 is no multiple of 4.
func.func public @main(%x: tensor<6x7xf32>) -> tensor<6xi32> {
  %inf = stablehlo.constant dense<0x7F800000> : tensor<f32>
  %none = stablehlo.constant dense<0> : tensor<i32>
  %i = stablehlo.iota dim = 1 : tensor<6x7xi32>
  %e = stablehlo.exponential %x : tensor<6x7xf32>
  %v, %k = stablehlo.reduce(%e init: %inf), (%i init: %none) across dimensions = [1] : (tensor<6x7xf32>, tensor<6x7xi32>, tensor<f32>, tensor<i32>) -> (tensor<6xf32>, tensor<6xi32>)
    reducer(%a: tensor<f32>, %b: tensor<f32>) (%p: tensor<i32>, %q: tensor<i32>) {
    %lt = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %eq = stablehlo.compare EQ, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %first = stablehlo.compare LT, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %tie = stablehlo.and %eq, %first : tensor<i1>
    %take = stablehlo.or %lt, %tie : tensor<i1>
    %value = stablehlo.select %lt, %a, %b : tensor<i1>, tensor<f32>
    %index = stablehlo.select %take, %p, %q : tensor<i1>, tensor<i32>
    stablehlo.return %value, %index : tensor<f32>, tensor<i32>
  }
  return %k : tensor<6xi32>
}

// -----
module {
  func.func public @main(%arg0: tensor<6x7xf32>) -> tensor<6xi32> {
    %cst = stablehlo.constant dense<0x7F800000> : tensor<f32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<6xf32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<6xi32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %2:3 = stablehlo.while(%iterArg = %c_0, %iterArg_1 = %0, %iterArg_2 = %1) : tensor<i32>, tensor<6xf32>, tensor<6xi32>
    cond {
      %c_3 = stablehlo.constant dense<2> : tensor<i32>
      %3 = stablehlo.compare LT, %iterArg, %c_3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    } do {
      %c_3 = stablehlo.constant dense<4> : tensor<i32>
      %3 = stablehlo.multiply %iterArg, %c_3 : tensor<i32>
      %c_4 = stablehlo.constant dense<3> : tensor<i32>
      %4 = stablehlo.minimum %3, %c_4 : tensor<i32>
      %5 = stablehlo.subtract %3, %4 : tensor<i32>
      %6 = stablehlo.compare GT, %3, %c_4 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %7 = stablehlo.subtract %c_4, %4 : tensor<i32>
      %c_5 = stablehlo.constant dense<4> : tensor<i32>
      %8 = stablehlo.minimum %7, %c_5 : tensor<i32>
      %c_6 = stablehlo.constant dense<4> : tensor<i32>
      %9 = stablehlo.select %6, %c_6, %8 : tensor<i1>, tensor<i32>
      %10 = stablehlo.iota dim = 1 : tensor<6x4xi32>
      %c_7 = stablehlo.constant dense<1> : tensor<i32>
      %11 = stablehlo.multiply %4, %c_7 : tensor<i32>
      %12 = stablehlo.broadcast_in_dim %11, dims = [] : (tensor<i32>) -> tensor<6x4xi32>
      %13 = stablehlo.add %10, %12 : tensor<6x4xi32>
      %c_8 = stablehlo.constant dense<0> : tensor<i32>
      %14 = stablehlo.dynamic_slice %arg0, %c_8, %4, sizes = [6, 4] : (tensor<6x7xf32>, tensor<i32>, tensor<i32>) -> tensor<6x4xf32>
      %15 = stablehlo.exponential %14 : tensor<6x4xf32>
      %16 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<6x4xf32>
      %17 = stablehlo.iota dim = 0 : tensor<4xi32>
      %18 = stablehlo.broadcast_in_dim %9, dims = [] : (tensor<i32>) -> tensor<4xi32>
      %19 = stablehlo.compare LT, %17, %18 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
      %20 = stablehlo.broadcast_in_dim %19, dims = [1] : (tensor<4xi1>) -> tensor<6x4xi1>
      %21 = stablehlo.select %20, %15, %16 : tensor<6x4xi1>, tensor<6x4xf32>
      %22 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<6x4xi32>
      %23 = stablehlo.iota dim = 0 : tensor<4xi32>
      %24 = stablehlo.broadcast_in_dim %9, dims = [] : (tensor<i32>) -> tensor<4xi32>
      %25 = stablehlo.compare LT, %23, %24 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
      %26 = stablehlo.broadcast_in_dim %25, dims = [1] : (tensor<4xi1>) -> tensor<6x4xi1>
      %27 = stablehlo.select %26, %13, %22 : tensor<6x4xi1>, tensor<6x4xi32>
      %28:2 = stablehlo.reduce(%21 init: %cst), (%27 init: %c) across dimensions = [1] : (tensor<6x4xf32>, tensor<6x4xi32>, tensor<f32>, tensor<i32>) -> (tensor<6xf32>, tensor<6xi32>)
       reducer(%arg1: tensor<f32>, %arg3: tensor<f32>) (%arg2: tensor<i32>, %arg4: tensor<i32>)  {
        %37 = stablehlo.compare LT, %arg1, %arg3 : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %38 = stablehlo.compare EQ, %arg1, %arg3 : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %39 = stablehlo.compare LT, %arg2, %arg4 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %40 = stablehlo.and %38, %39 : tensor<i1>
        %41 = stablehlo.or %37, %40 : tensor<i1>
        %42 = stablehlo.select %37, %arg1, %arg3 : tensor<i1>, tensor<f32>
        %43 = stablehlo.select %41, %arg2, %arg4 : tensor<i1>, tensor<i32>
        stablehlo.return %42, %43 : tensor<f32>, tensor<i32>
      }
      %29 = stablehlo.compare LT, %iterArg_1, %28#0 : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xi1>
      %30 = stablehlo.compare EQ, %iterArg_1, %28#0 : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xi1>
      %31 = stablehlo.compare LT, %iterArg_2, %28#1 : (tensor<6xi32>, tensor<6xi32>) -> tensor<6xi1>
      %32 = stablehlo.and %30, %31 : tensor<6xi1>
      %33 = stablehlo.or %29, %32 : tensor<6xi1>
      %34 = stablehlo.select %29, %iterArg_1, %28#0 : tensor<6xi1>, tensor<6xf32>
      %35 = stablehlo.select %33, %iterArg_2, %28#1 : tensor<6xi1>, tensor<6xi32>
      %c_9 = stablehlo.constant dense<1> : tensor<i32>
      %36 = stablehlo.add %iterArg, %c_9 : tensor<i32>
      stablehlo.return %36, %34, %35 : tensor<i32>, tensor<6xf32>, tensor<6xi32>
    }
    return %2#2 : tensor<6xi32>
  }
}
