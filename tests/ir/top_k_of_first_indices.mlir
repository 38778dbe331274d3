// rewrite sort-to-top-k
// What jnp.argsort(x)[:, :5] lowers to.
func.func public @main(%x: tensor<8x1000xf32>) -> tensor<8x5xi32> {
  %nan = stablehlo.constant dense<0x7FC00000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %i = stablehlo.iota dim = 1 : tensor<8x1000xi32>
  %s:2 = "stablehlo.sort"(%x, %i) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %0 = stablehlo.compare EQ, %a, %zero, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %1 = stablehlo.select %0, %zero, %a : tensor<i1>, tensor<f32>
    %2 = stablehlo.compare NE, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %3 = stablehlo.select %2, %nan, %1 : tensor<i1>, tensor<f32>
    %4 = stablehlo.compare EQ, %b, %zero, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %5 = stablehlo.select %4, %zero, %b : tensor<i1>, tensor<f32>
    %6 = stablehlo.compare NE, %b, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %7 = stablehlo.select %6, %nan, %5 : tensor<i1>, tensor<f32>
    %8 = stablehlo.compare LT, %3, %7, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %8 : tensor<i1>
  }) : (tensor<8x1000xf32>, tensor<8x1000xi32>) -> (tensor<8x1000xf32>, tensor<8x1000xi32>)
  %y = stablehlo.slice %s#1 [0:8, 0:5] : (tensor<8x1000xi32>) -> tensor<8x5xi32>
  return %y : tensor<8x5xi32>
}

// -----
module {
  func.func public @main(%arg0: tensor<8x1000xf32>) -> tensor<8x5xi32> {
    %c = stablehlo.constant dense<-2147483648> : tensor<8x1000xi32>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.compare NE, %arg0, %arg0, FLOAT : (tensor<8x1000xf32>, tensor<8x1000xf32>) -> tensor<8x1000xi1>
    %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<8x1000xf32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<8x1000xf32>
    %3 = stablehlo.compare EQ, %arg0, %2, FLOAT : (tensor<8x1000xf32>, tensor<8x1000xf32>) -> tensor<8x1000xi1>
    %4 = stablehlo.select %3, %2, %arg0 : tensor<8x1000xi1>, tensor<8x1000xf32>
    %5 = stablehlo.select %0, %1, %4 : tensor<8x1000xi1>, tensor<8x1000xf32>
    %6 = stablehlo.bitcast_convert %5 : (tensor<8x1000xf32>) -> tensor<8x1000xi32>
    %7 = stablehlo.xor %6, %c : tensor<8x1000xi32>
    %8 = stablehlo.bitcast_convert %7 : (tensor<8x1000xi32>) -> tensor<8x1000xf32>
    %values, %indices = chlo.top_k(%8, k = 17) : tensor<8x1000xf32> -> (tensor<8x17xf32>, tensor<8x17xi32>)
    %9 = stablehlo.slice %indices [0:8, 0:5] : (tensor<8x17xi32>) -> tensor<8x5xi32>
    return %9 : tensor<8x5xi32>
  }
}
