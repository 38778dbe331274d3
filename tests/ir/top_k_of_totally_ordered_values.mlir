// rewrite sort-to-top-k
// Without a key of its own the values come back out of the top-k.
func.func public @main(%x: tensor<1000xf32>) -> tensor<20xf32> {
  %s = "stablehlo.sort"(%x) <{dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %0 = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %0 : tensor<i1>
  }) : (tensor<1000xf32>) -> tensor<1000xf32>
  %y = stablehlo.slice %s [0:20] : (tensor<1000xf32>) -> tensor<20xf32>
  return %y : tensor<20xf32>
}

// -----
module {
  func.func public @main(%arg0: tensor<1000xf32>) -> tensor<20xf32> {
    %c = stablehlo.constant dense<-2147483648> : tensor<20xi32>
    %c_0 = stablehlo.constant dense<-2147483648> : tensor<1000xi32>
    %0 = stablehlo.bitcast_convert %arg0 : (tensor<1000xf32>) -> tensor<1000xi32>
    %1 = stablehlo.xor %0, %c_0 : tensor<1000xi32>
    %2 = stablehlo.bitcast_convert %1 : (tensor<1000xi32>) -> tensor<1000xf32>
    %values, %indices = chlo.top_k(%2, k = 20) : tensor<1000xf32> -> (tensor<20xf32>, tensor<20xi32>)
    %3 = stablehlo.bitcast_convert %values : (tensor<20xf32>) -> tensor<20xi32>
    %4 = stablehlo.xor %3, %c : tensor<20xi32>
    %5 = stablehlo.bitcast_convert %4 : (tensor<20xi32>) -> tensor<20xf32>
    return %5 : tensor<20xf32>
  }
}
