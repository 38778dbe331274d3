// split tanh along 0 by 2
// Each of two devices has half of the rows; a chunk is one row of each half. The sum over devices is of the chunk.
sdy.mesh @mesh = <["x"=2]>
func.func public @main(%x: tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}, %w: tensor<6x6xf32>) -> tensor<8x6xf32> {
  %h = stablehlo.tanh %x : tensor<8x6xf32>
  %0 = sdy.manual_computation(%h, %w) in_shardings=[<@mesh, [{"x"}, {}]>, <@mesh, [{}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%a: tensor<4x6xf32>, %b: tensor<6x6xf32>) {
    %y = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
    %s = "stablehlo.all_reduce"(%y) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
    ^bb0(%l: tensor<f32>, %r: tensor<f32>):
      %sum = stablehlo.add %l, %r : tensor<f32>
      stablehlo.return %sum : tensor<f32>
    }) : (tensor<4x6xf32>) -> tensor<4x6xf32>
    %i = stablehlo.iota dim = 0 : tensor<4x6xf32>
    %z = stablehlo.add %s, %i : tensor<4x6xf32>
    sdy.return %z : tensor<4x6xf32>
  } : (tensor<8x6xf32>, tensor<6x6xf32>) -> tensor<8x6xf32>
  return %0 : tensor<8x6xf32>
}

// -----
module {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%arg0: tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}, %arg1: tensor<6x6xf32>) -> tensor<8x6xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<8x6xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %cst) : tensor<i32>, tensor<8x6xf32>
    cond {
      %c_1 = stablehlo.constant dense<4> : tensor<i32>
      %1 = stablehlo.compare LT, %iterArg, %c_1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = stablehlo.reshape %arg0 : (tensor<8x6xf32>) -> tensor<2x4x6xf32>
      %c_1 = stablehlo.constant dense<0> : tensor<i32>
      %2 = stablehlo.dynamic_slice %1, %c_1, %iterArg, %c_1, sizes = [2, 1, 6] : (tensor<2x4x6xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x1x6xf32>
      %3 = stablehlo.reshape %2 : (tensor<2x1x6xf32>) -> tensor<2x6xf32>
      %4 = stablehlo.tanh %3 : tensor<2x6xf32>
      %5 = sdy.manual_computation(%4, %arg1, %iterArg) in_shardings=[<@mesh, [{"x"}, {}]>, <@mesh, [{}, {}]>, <@mesh, []>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%arg2: tensor<1x6xf32>, %arg3: tensor<6x6xf32>, %arg4: tensor<i32>) {
        %11 = stablehlo.dot_general %arg2, %arg3, contracting_dims = [1] x [0] : (tensor<1x6xf32>, tensor<6x6xf32>) -> tensor<1x6xf32>
        %12 = "stablehlo.all_reduce"(%11) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
        ^bb0(%arg5: tensor<f32>, %arg6: tensor<f32>):
          %19 = stablehlo.add %arg5, %arg6 : tensor<f32>
          stablehlo.return %19 : tensor<f32>
        }) : (tensor<1x6xf32>) -> tensor<1x6xf32>
        %13 = stablehlo.iota dim = 0 : tensor<1x6xi32>
        %c_4 = stablehlo.constant dense<1> : tensor<i32>
        %14 = stablehlo.multiply %arg4, %c_4 : tensor<i32>
        %15 = stablehlo.broadcast_in_dim %14, dims = [] : (tensor<i32>) -> tensor<1x6xi32>
        %16 = stablehlo.add %13, %15 : tensor<1x6xi32>
        %17 = stablehlo.convert %16 : (tensor<1x6xi32>) -> tensor<1x6xf32>
        %18 = stablehlo.add %12, %17 : tensor<1x6xf32>
        sdy.return %18 : tensor<1x6xf32>
      } : (tensor<2x6xf32>, tensor<6x6xf32>, tensor<i32>) -> tensor<2x6xf32>
      %6 = stablehlo.reshape %iterArg_0 : (tensor<8x6xf32>) -> tensor<2x4x6xf32>
      %7 = stablehlo.reshape %5 : (tensor<2x6xf32>) -> tensor<2x1x6xf32>
      %c_2 = stablehlo.constant dense<0> : tensor<i32>
      %8 = stablehlo.dynamic_update_slice %6, %7, %c_2, %iterArg, %c_2 : (tensor<2x4x6xf32>, tensor<2x1x6xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<2x4x6xf32>
      %9 = stablehlo.reshape %8 : (tensor<2x4x6xf32>) -> tensor<8x6xf32>
      %c_3 = stablehlo.constant dense<1> : tensor<i32>
      %10 = stablehlo.add %iterArg, %c_3 : tensor<i32>
      stablehlo.return %10, %9 : tensor<i32>, tensor<8x6xf32>
    }
    return %0#1 : tensor<8x6xf32>
  }
}
