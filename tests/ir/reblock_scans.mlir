// reblock-scans by 4
// h[t] = a[t] h[t-1] + b[t], ten elements in chunks of four: the last begins early, and goes on from the midst of
// the one before.
func.func public @main(%arg0: tensor<10xf32>, %arg1: tensor<10xf32>) -> (tensor<10xf32>) {
  %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %0 = stablehlo.slice %arg0 [0:9:2] : (tensor<10xf32>) -> tensor<5xf32>
  %1 = stablehlo.slice %arg1 [0:9:2] : (tensor<10xf32>) -> tensor<5xf32>
  %2 = stablehlo.slice %arg0 [1:10:2] : (tensor<10xf32>) -> tensor<5xf32>
  %3 = stablehlo.slice %arg1 [1:10:2] : (tensor<10xf32>) -> tensor<5xf32>
  %4 = stablehlo.multiply %2, %0 : tensor<5xf32>
  %5 = stablehlo.multiply %2, %1 : tensor<5xf32>
  %6 = stablehlo.add %5, %3 : tensor<5xf32>
  %7 = stablehlo.slice %4 [0:4:2] : (tensor<5xf32>) -> tensor<2xf32>
  %8 = stablehlo.slice %6 [0:4:2] : (tensor<5xf32>) -> tensor<2xf32>
  %9 = stablehlo.slice %4 [1:5:2] : (tensor<5xf32>) -> tensor<2xf32>
  %10 = stablehlo.slice %6 [1:5:2] : (tensor<5xf32>) -> tensor<2xf32>
  %11 = stablehlo.multiply %9, %7 : tensor<2xf32>
  %12 = stablehlo.multiply %9, %8 : tensor<2xf32>
  %13 = stablehlo.add %12, %10 : tensor<2xf32>
  %14 = stablehlo.slice %13 [0:1:2] : (tensor<2xf32>) -> tensor<1xf32>
  %15 = stablehlo.slice %11 [1:2:2] : (tensor<2xf32>) -> tensor<1xf32>
  %16 = stablehlo.slice %13 [1:2:2] : (tensor<2xf32>) -> tensor<1xf32>
  %17 = stablehlo.multiply %15, %14 : tensor<1xf32>
  %18 = stablehlo.add %17, %16 : tensor<1xf32>
  %19 = stablehlo.slice %18 [0:0] : (tensor<1xf32>) -> tensor<0xf32>
  %20 = stablehlo.slice %11 [2:2:2] : (tensor<2xf32>) -> tensor<0xf32>
  %21 = stablehlo.slice %13 [2:2:2] : (tensor<2xf32>) -> tensor<0xf32>
  %22 = stablehlo.multiply %20, %19 : tensor<0xf32>
  %23 = stablehlo.add %22, %21 : tensor<0xf32>
  %24 = stablehlo.slice %13 [0:1] : (tensor<2xf32>) -> tensor<1xf32>
  %25 = stablehlo.concatenate %24, %23, dim = 0 : (tensor<1xf32>, tensor<0xf32>) -> tensor<1xf32>
  %26 = stablehlo.pad %25, %cst, low = [0], high = [1], interior = [1] : (tensor<1xf32>, tensor<f32>) -> tensor<2xf32>
  %27 = stablehlo.pad %18, %cst, low = [1], high = [0], interior = [1] : (tensor<1xf32>, tensor<f32>) -> tensor<2xf32>
  %28 = stablehlo.add %26, %27 : tensor<2xf32>
  %29 = stablehlo.slice %4 [2:5:2] : (tensor<5xf32>) -> tensor<2xf32>
  %30 = stablehlo.slice %6 [2:5:2] : (tensor<5xf32>) -> tensor<2xf32>
  %31 = stablehlo.multiply %29, %28 : tensor<2xf32>
  %32 = stablehlo.add %31, %30 : tensor<2xf32>
  %33 = stablehlo.slice %6 [0:1] : (tensor<5xf32>) -> tensor<1xf32>
  %34 = stablehlo.concatenate %33, %32, dim = 0 : (tensor<1xf32>, tensor<2xf32>) -> tensor<3xf32>
  %35 = stablehlo.pad %34, %cst, low = [0], high = [0], interior = [1] : (tensor<3xf32>, tensor<f32>) -> tensor<5xf32>
  %36 = stablehlo.pad %28, %cst, low = [1], high = [1], interior = [1] : (tensor<2xf32>, tensor<f32>) -> tensor<5xf32>
  %37 = stablehlo.add %35, %36 : tensor<5xf32>
  %38 = stablehlo.slice %37 [0:4] : (tensor<5xf32>) -> tensor<4xf32>
  %39 = stablehlo.slice %arg0 [2:10:2] : (tensor<10xf32>) -> tensor<4xf32>
  %40 = stablehlo.slice %arg1 [2:10:2] : (tensor<10xf32>) -> tensor<4xf32>
  %41 = stablehlo.multiply %39, %38 : tensor<4xf32>
  %42 = stablehlo.add %41, %40 : tensor<4xf32>
  %43 = stablehlo.slice %arg1 [0:1] : (tensor<10xf32>) -> tensor<1xf32>
  %44 = stablehlo.concatenate %43, %42, dim = 0 : (tensor<1xf32>, tensor<4xf32>) -> tensor<5xf32>
  %45 = stablehlo.pad %44, %cst, low = [0], high = [1], interior = [1] : (tensor<5xf32>, tensor<f32>) -> tensor<10xf32>
  %46 = stablehlo.pad %37, %cst, low = [1], high = [0], interior = [1] : (tensor<5xf32>, tensor<f32>) -> tensor<10xf32>
  %47 = stablehlo.add %45, %46 : tensor<10xf32>
  return %47 : tensor<10xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<10xf32>, %arg1: tensor<10xf32>) -> tensor<10xf32> {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %c_0 = stablehlo.constant dense<6> : tensor<i32>
    %c_1 = stablehlo.constant dense<4> : tensor<i32>
    %c_2 = stablehlo.constant dense<3> : tensor<i32>
    %c_3 = stablehlo.constant dense<0> : tensor<i32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<10xf32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %1:3 = stablehlo.while(%iterArg = %c_3, %iterArg_5 = %cst, %iterArg_6 = %0) : tensor<i32>, tensor<10xf32>, tensor<4xf32>
    cond {
      %2 = stablehlo.compare LT, %iterArg, %c_2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %2 : tensor<i1>
    } do {
      %2 = stablehlo.multiply %iterArg, %c_1 : tensor<i32>
      %3 = stablehlo.minimum %2, %c_0 : tensor<i32>
      %4 = stablehlo.subtract %2, %3 : tensor<i32>
      %5 = stablehlo.dynamic_slice %arg1, %3, sizes = [4] : (tensor<10xf32>, tensor<i32>) -> tensor<4xf32>
      %6 = stablehlo.dynamic_slice %arg0, %3, sizes = [4] : (tensor<10xf32>, tensor<i32>) -> tensor<4xf32>
      %7 = stablehlo.subtract %c_2, %4 : tensor<i32>
      %8 = stablehlo.dynamic_slice %iterArg_6, %7, sizes = [1] : (tensor<4xf32>, tensor<i32>) -> tensor<1xf32>
      %9 = stablehlo.slice %5 [0:1] : (tensor<4xf32>) -> tensor<1xf32>
      %10 = stablehlo.slice %6 [0:1] : (tensor<4xf32>) -> tensor<1xf32>
      %11 = stablehlo.multiply %10, %8 : tensor<1xf32>
      %12 = stablehlo.add %11, %9 : tensor<1xf32>
      %13 = stablehlo.compare EQ, %3, %c_3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %14 = stablehlo.select %13, %9, %12 : tensor<i1>, tensor<1xf32>
      %15 = stablehlo.slice %5 [1:4] : (tensor<4xf32>) -> tensor<3xf32>
      %16 = stablehlo.concatenate %14, %15, dim = 0 : (tensor<1xf32>, tensor<3xf32>) -> tensor<4xf32>
      %17 = stablehlo.slice %16 [0:3:2] : (tensor<4xf32>) -> tensor<2xf32>
      %18 = stablehlo.slice %6 [0:3:2] : (tensor<4xf32>) -> tensor<2xf32>
      %19 = stablehlo.slice %16 [1:4:2] : (tensor<4xf32>) -> tensor<2xf32>
      %20 = stablehlo.slice %6 [1:4:2] : (tensor<4xf32>) -> tensor<2xf32>
      %21 = stablehlo.multiply %20, %17 : tensor<2xf32>
      %22 = stablehlo.add %21, %19 : tensor<2xf32>
      %23 = stablehlo.multiply %20, %18 : tensor<2xf32>
      %24 = stablehlo.slice %22 [0:1:2] : (tensor<2xf32>) -> tensor<1xf32>
      %25 = stablehlo.slice %22 [1:2:2] : (tensor<2xf32>) -> tensor<1xf32>
      %26 = stablehlo.slice %23 [1:2:2] : (tensor<2xf32>) -> tensor<1xf32>
      %27 = stablehlo.multiply %26, %24 : tensor<1xf32>
      %28 = stablehlo.add %27, %25 : tensor<1xf32>
      %29 = stablehlo.slice %22 [0:1] : (tensor<2xf32>) -> tensor<1xf32>
      %30 = stablehlo.pad %29, %cst_4, low = [0], high = [1], interior = [1] : (tensor<1xf32>, tensor<f32>) -> tensor<2xf32>
      %31 = stablehlo.pad %28, %cst_4, low = [1], high = [0], interior = [1] : (tensor<1xf32>, tensor<f32>) -> tensor<2xf32>
      %32 = stablehlo.add %30, %31 : tensor<2xf32>
      %33 = stablehlo.slice %16 [0:1] : (tensor<4xf32>) -> tensor<1xf32>
      %34 = stablehlo.slice %32 [0:1] : (tensor<2xf32>) -> tensor<1xf32>
      %35 = stablehlo.slice %16 [2:4:2] : (tensor<4xf32>) -> tensor<1xf32>
      %36 = stablehlo.slice %6 [2:4:2] : (tensor<4xf32>) -> tensor<1xf32>
      %37 = stablehlo.multiply %36, %34 : tensor<1xf32>
      %38 = stablehlo.add %37, %35 : tensor<1xf32>
      %39 = stablehlo.concatenate %33, %38, dim = 0 : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
      %40 = stablehlo.pad %39, %cst_4, low = [0], high = [1], interior = [1] : (tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
      %41 = stablehlo.pad %32, %cst_4, low = [1], high = [0], interior = [1] : (tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
      %42 = stablehlo.add %40, %41 : tensor<4xf32>
      %43 = stablehlo.dynamic_update_slice %iterArg_5, %42, %3 : (tensor<10xf32>, tensor<4xf32>, tensor<i32>) -> tensor<10xf32>
      %44 = stablehlo.add %iterArg, %c : tensor<i32>
      stablehlo.return %44, %43, %42 : tensor<i32>, tensor<10xf32>, tensor<4xf32>
    }
    return %1#1 : tensor<10xf32>
  }
}
