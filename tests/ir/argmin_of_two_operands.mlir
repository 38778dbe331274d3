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
      %6 = stablehlo.iota dim = 1 : tensor<6x4xi32>
      %c_5 = stablehlo.constant dense<1> : tensor<i32>
      %7 = stablehlo.multiply %4, %c_5 : tensor<i32>
      %8 = stablehlo.broadcast_in_dim %7, dims = [] : (tensor<i32>) -> tensor<6x4xi32>
      %9 = stablehlo.add %6, %8 : tensor<6x4xi32>
      %c_6 = stablehlo.constant dense<0> : tensor<i32>
      %10 = stablehlo.dynamic_slice %arg0, %c_6, %4, sizes = [6, 4] : (tensor<6x7xf32>, tensor<i32>, tensor<i32>) -> tensor<6x4xf32>
      %11 = stablehlo.exponential %10 : tensor<6x4xf32>
      %12 = stablehlo.iota dim = 0 : tensor<4xi32>
      %13 = stablehlo.broadcast_in_dim %5, dims = [] : (tensor<i32>) -> tensor<4xi32>
      %14 = stablehlo.compare GE, %12, %13 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
      %15 = stablehlo.broadcast_in_dim %14, dims = [1] : (tensor<4xi1>) -> tensor<6x4xi1>
      %16 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<6x4xf32>
      %17 = stablehlo.select %15, %11, %16 : tensor<6x4xi1>, tensor<6x4xf32>
      %18 = stablehlo.iota dim = 0 : tensor<4xi32>
      %19 = stablehlo.broadcast_in_dim %5, dims = [] : (tensor<i32>) -> tensor<4xi32>
      %20 = stablehlo.compare GE, %18, %19 : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
      %21 = stablehlo.broadcast_in_dim %20, dims = [1] : (tensor<4xi1>) -> tensor<6x4xi1>
      %22 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<6x4xi32>
      %23 = stablehlo.select %21, %9, %22 : tensor<6x4xi1>, tensor<6x4xi32>
      %24:2 = stablehlo.reduce(%17 init: %cst), (%23 init: %c) across dimensions = [1] : (tensor<6x4xf32>, tensor<6x4xi32>, tensor<f32>, tensor<i32>) -> (tensor<6xf32>, tensor<6xi32>)
       reducer(%arg1: tensor<f32>, %arg3: tensor<f32>) (%arg2: tensor<i32>, %arg4: tensor<i32>)  {
        %33 = stablehlo.compare LT, %arg1, %arg3 : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %34 = stablehlo.compare EQ, %arg1, %arg3 : (tensor<f32>, tensor<f32>) -> tensor<i1>
        %35 = stablehlo.compare LT, %arg2, %arg4 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %36 = stablehlo.and %34, %35 : tensor<i1>
        %37 = stablehlo.or %33, %36 : tensor<i1>
        %38 = stablehlo.select %33, %arg1, %arg3 : tensor<i1>, tensor<f32>
        %39 = stablehlo.select %37, %arg2, %arg4 : tensor<i1>, tensor<i32>
        stablehlo.return %38, %39 : tensor<f32>, tensor<i32>
      }
      %25 = stablehlo.compare LT, %iterArg_1, %24#0 : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xi1>
      %26 = stablehlo.compare EQ, %iterArg_1, %24#0 : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xi1>
      %27 = stablehlo.compare LT, %iterArg_2, %24#1 : (tensor<6xi32>, tensor<6xi32>) -> tensor<6xi1>
      %28 = stablehlo.and %26, %27 : tensor<6xi1>
      %29 = stablehlo.or %25, %28 : tensor<6xi1>
      %30 = stablehlo.select %25, %iterArg_1, %24#0 : tensor<6xi1>, tensor<6xf32>
      %31 = stablehlo.select %29, %iterArg_2, %24#1 : tensor<6xi1>, tensor<6xi32>
      %c_7 = stablehlo.constant dense<1> : tensor<i32>
      %32 = stablehlo.add %iterArg, %c_7 : tensor<i32>
      stablehlo.return %32, %30, %31 : tensor<i32>, tensor<6xf32>, tensor<6xi32>
    }
    return %2#2 : tensor<6xi32>
  }
}
