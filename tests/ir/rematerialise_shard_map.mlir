// rematerialise in a pair
// Layers whose weights devices share out, and their gradient, which repeats the products; their inputs stay stored.
module {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%arg0: tensor<3x4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}, {}]>}, %arg1: tensor<16x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<3x4x4xf32> {jax.result_info = "result[1]"}) {
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %0:6 = sdy.manual_computation(%arg0, %arg1) in_shardings=[<@mesh, [{}, {"x"}, {}]>, <@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}, {}]>, <@mesh, [{"x"}, {}, {}]>, <@mesh, [{"x"}, {}, {}]>, <@mesh, [{"x"}, {}, {}]>, <@mesh, [{"x"}, {}]>, <@mesh, []>] manual_axes={"x"} (%arg2: tensor<3x2x4xf32>, %arg3: tensor<8x4xf32>) {
      %cst_0 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
      %c = stablehlo.constant dense<1> : tensor<i32>
      %c_1 = stablehlo.constant dense<3> : tensor<i32>
      %c_2 = stablehlo.constant dense<0> : tensor<i32>
      %cst_3 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %2 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<3x4x4xf32>
      %3 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<3x8x4xf32>
      %4:8 = stablehlo.while(%iterArg = %arg2, %iterArg_5 = %cst_3, %iterArg_6 = %c_2, %iterArg_7 = %arg3, %iterArg_8 = %2, %iterArg_9 = %3, %iterArg_10 = %3, %iterArg_11 = %3) : tensor<3x2x4xf32>, tensor<f32>, tensor<i32>, tensor<8x4xf32>, tensor<3x4x4xf32>, tensor<3x8x4xf32>, tensor<3x8x4xf32>, tensor<3x8x4xf32>
      cond {
        %10 = stablehlo.compare LT, %iterArg_6, %c_1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %10 : tensor<i1>
      } do {
        %10 = stablehlo.dynamic_slice %iterArg, %iterArg_6, %c_2, %c_2, sizes = [1, 2, 4] : (tensor<3x2x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x4xf32>
        %11 = stablehlo.reshape %10 : (tensor<1x2x4xf32>) -> tensor<2x4xf32>
        %12 = "stablehlo.all_gather"(%11) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<2x4xf32>) -> tensor<4x4xf32>
        %13 = stablehlo.dot_general %iterArg_7, %12, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
        %14 = stablehlo.tanh %13 : tensor<8x4xf32>
        %15 = stablehlo.broadcast_in_dim %iterArg_5, dims = [] : (tensor<f32>) -> tensor<8x4xf32>
        %16 = stablehlo.subtract %15, %14 : tensor<8x4xf32>
        %17 = stablehlo.add %iterArg_7, %14 : tensor<8x4xf32>
        %18 = stablehlo.broadcast_in_dim %12, dims = [1, 2] : (tensor<4x4xf32>) -> tensor<1x4x4xf32>
        %19 = stablehlo.dynamic_update_slice %iterArg_8, %18, %iterArg_6, %c_2, %c_2 : (tensor<3x4x4xf32>, tensor<1x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x4x4xf32>
        %20 = stablehlo.broadcast_in_dim %iterArg_7, dims = [1, 2] : (tensor<8x4xf32>) -> tensor<1x8x4xf32>
        %21 = stablehlo.dynamic_update_slice %iterArg_9, %20, %iterArg_6, %c_2, %c_2 : (tensor<3x8x4xf32>, tensor<1x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x8x4xf32>
        %22 = stablehlo.broadcast_in_dim %14, dims = [1, 2] : (tensor<8x4xf32>) -> tensor<1x8x4xf32>
        %23 = stablehlo.dynamic_update_slice %iterArg_10, %22, %iterArg_6, %c_2, %c_2 : (tensor<3x8x4xf32>, tensor<1x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x8x4xf32>
        %24 = stablehlo.broadcast_in_dim %16, dims = [1, 2] : (tensor<8x4xf32>) -> tensor<1x8x4xf32>
        %25 = stablehlo.dynamic_update_slice %iterArg_11, %24, %iterArg_6, %c_2, %c_2 : (tensor<3x8x4xf32>, tensor<1x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x8x4xf32>
        %26 = stablehlo.add %iterArg_6, %c : tensor<i32>
        stablehlo.return %iterArg, %iterArg_5, %26, %17, %19, %21, %23, %25 : tensor<3x2x4xf32>, tensor<f32>, tensor<i32>, tensor<8x4xf32>, tensor<3x4x4xf32>, tensor<3x8x4xf32>, tensor<3x8x4xf32>, tensor<3x8x4xf32>
      }
      %5 = stablehlo.multiply %4#3, %4#3 : tensor<8x4xf32>
      %6 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<8x4xf32>
      %7 = stablehlo.multiply %6, %4#3 : tensor<8x4xf32>
      %8 = stablehlo.reduce(%5 init: %cst_4) applies stablehlo.add across dimensions = [0, 1] : (tensor<8x4xf32>, tensor<f32>) -> tensor<f32>
      %9 = "stablehlo.all_reduce"(%8) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
      ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
        %10 = stablehlo.add %arg4, %arg5 : tensor<f32>
        stablehlo.return %10 : tensor<f32>
      }) : (tensor<f32>) -> tensor<f32>
      sdy.return %4#4, %4#5, %4#6, %4#7, %7, %9 : tensor<3x4x4xf32>, tensor<3x8x4xf32>, tensor<3x8x4xf32>, tensor<3x8x4xf32>, tensor<8x4xf32>, tensor<f32>
    } : (tensor<3x4x4xf32>, tensor<16x4xf32>) -> (tensor<6x4x4xf32>, tensor<6x8x4xf32>, tensor<6x8x4xf32>, tensor<6x8x4xf32>, tensor<16x4xf32>, tensor<f32>)
    %1 = sdy.manual_computation(%cst, %0#0, %0#1, %0#2, %0#3, %0#4) in_shardings=[<@mesh, []>, <@mesh, [{"x"}, {}, {}]>, <@mesh, [{"x"}, {}, {}]>, <@mesh, [{"x"}, {}, {}]>, <@mesh, [{"x"}, {}, {}]>, <@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{}, {"x"}, {}]>] manual_axes={"x"} (%arg2: tensor<f32>, %arg3: tensor<3x4x4xf32>, %arg4: tensor<3x8x4xf32>, %arg5: tensor<3x8x4xf32>, %arg6: tensor<3x8x4xf32>, %arg7: tensor<8x4xf32>) {
      %c = stablehlo.constant dense<1> : tensor<i32>
      %c_0 = stablehlo.constant dense<3> : tensor<i32>
      %c_1 = stablehlo.constant dense<0> : tensor<i32>
      %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %2 = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<f32>) -> tensor<8x4xf32>
      %3 = stablehlo.multiply %2, %arg7 : tensor<8x4xf32>
      %4 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<3x2x4xf32>
      %5:7 = stablehlo.while(%iterArg = %arg3, %iterArg_3 = %arg4, %iterArg_4 = %arg5, %iterArg_5 = %arg6, %iterArg_6 = %c_1, %iterArg_7 = %3, %iterArg_8 = %4) : tensor<3x4x4xf32>, tensor<3x8x4xf32>, tensor<3x8x4xf32>, tensor<3x8x4xf32>, tensor<i32>, tensor<8x4xf32>, tensor<3x2x4xf32>
      cond {
        %6 = stablehlo.compare LT, %iterArg_6, %c_0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %6 : tensor<i1>
      } do {
        %6 = stablehlo.subtract %c_0, %iterArg_6 : tensor<i32>
        %7 = stablehlo.subtract %6, %c : tensor<i32>
        %8 = stablehlo.dynamic_slice %iterArg, %7, %c_1, %c_1, sizes = [1, 4, 4] : (tensor<3x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
        %9 = stablehlo.reshape %8 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
        %10 = stablehlo.dynamic_slice %iterArg_3, %7, %c_1, %c_1, sizes = [1, 8, 4] : (tensor<3x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x4xf32>
        %11 = stablehlo.reshape %10 : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
        %12 = stablehlo.dynamic_slice %iterArg_4, %7, %c_1, %c_1, sizes = [1, 8, 4] : (tensor<3x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x4xf32>
        %13 = stablehlo.reshape %12 : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
        %14 = stablehlo.dynamic_slice %iterArg_5, %7, %c_1, %c_1, sizes = [1, 8, 4] : (tensor<3x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x4xf32>
        %15 = stablehlo.reshape %14 : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
        %16 = stablehlo.multiply %iterArg_7, %15 : tensor<8x4xf32>
        %17 = stablehlo.multiply %16, %13 : tensor<8x4xf32>
        %18 = stablehlo.add %16, %17 : tensor<8x4xf32>
        %19 = stablehlo.dot_general %18, %11, contracting_dims = [0] x [0] : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
        %20 = stablehlo.transpose %19, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
        %21 = stablehlo.dot_general %18, %9, contracting_dims = [1] x [1] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
        %22 = stablehlo.add %iterArg_7, %21 : tensor<8x4xf32>
        %23 = "stablehlo.reduce_scatter"(%20) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
        ^bb0(%arg8: tensor<f32>, %arg9: tensor<f32>):
          %27 = stablehlo.add %arg8, %arg9 : tensor<f32>
          stablehlo.return %27 : tensor<f32>
        }) : (tensor<4x4xf32>) -> tensor<2x4xf32>
        %24 = stablehlo.broadcast_in_dim %23, dims = [1, 2] : (tensor<2x4xf32>) -> tensor<1x2x4xf32>
        %25 = stablehlo.dynamic_update_slice %iterArg_8, %24, %7, %c_1, %c_1 : (tensor<3x2x4xf32>, tensor<1x2x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x2x4xf32>
        %26 = stablehlo.add %iterArg_6, %c : tensor<i32>
        stablehlo.return %iterArg, %iterArg_3, %iterArg_4, %iterArg_5, %26, %22, %25 : tensor<3x4x4xf32>, tensor<3x8x4xf32>, tensor<3x8x4xf32>, tensor<3x8x4xf32>, tensor<i32>, tensor<8x4xf32>, tensor<3x2x4xf32>
      }
      sdy.return %5#6 : tensor<3x2x4xf32>
    } : (tensor<f32>, tensor<6x4x4xf32>, tensor<6x8x4xf32>, tensor<6x8x4xf32>, tensor<6x8x4xf32>, tensor<16x4xf32>) -> tensor<3x4x4xf32>
    return %0#5, %1 : tensor<f32>, tensor<3x4x4xf32>
  }
}

// -----
module {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%arg0: tensor<3x4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}, {}]>}, %arg1: tensor<16x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> (tensor<f32> {jax.result_info = "result[0]"}, tensor<3x4x4xf32> {jax.result_info = "result[1]"}) {
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %0:4 = sdy.manual_computation(%arg0, %arg1) in_shardings=[<@mesh, [{}, {"x"}, {}]>, <@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, []>, <@mesh, [{"x"}, {}]>, <@mesh, [{"x"}, {}, {}]>, <@mesh, [{"x"}, {}, {}]>] manual_axes={"x"} (%arg2: tensor<3x2x4xf32>, %arg3: tensor<8x4xf32>) {
      %c = stablehlo.constant dense<1> : tensor<i32>
      %c_0 = stablehlo.constant dense<3> : tensor<i32>
      %c_1 = stablehlo.constant dense<0> : tensor<i32>
      %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %2 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<3x4x4xf32>
      %3 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<3x8x4xf32>
      %4:5 = stablehlo.while(%iterArg = %arg2, %iterArg_3 = %c_1, %iterArg_4 = %arg3, %iterArg_5 = %2, %iterArg_6 = %3) : tensor<3x2x4xf32>, tensor<i32>, tensor<8x4xf32>, tensor<3x4x4xf32>, tensor<3x8x4xf32>
      cond {
        %8 = stablehlo.compare LT, %iterArg_3, %c_0, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %8 : tensor<i1>
      } do {
        %8 = stablehlo.dynamic_slice %iterArg, %iterArg_3, %c_1, %c_1, sizes = [1, 2, 4] : (tensor<3x2x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x4xf32>
        %9 = stablehlo.reshape %8 : (tensor<1x2x4xf32>) -> tensor<2x4xf32>
        %10 = "stablehlo.all_gather"(%9) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> : (tensor<2x4xf32>) -> tensor<4x4xf32>
        %11 = stablehlo.dot_general %iterArg_4, %10, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
        %12 = stablehlo.tanh %11 : tensor<8x4xf32>
        %13 = stablehlo.add %iterArg_4, %12 : tensor<8x4xf32>
        %14 = stablehlo.broadcast_in_dim %10, dims = [1, 2] : (tensor<4x4xf32>) -> tensor<1x4x4xf32>
        %15 = stablehlo.dynamic_update_slice %iterArg_5, %14, %iterArg_3, %c_1, %c_1 : (tensor<3x4x4xf32>, tensor<1x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x4x4xf32>
        %16 = stablehlo.broadcast_in_dim %iterArg_4, dims = [1, 2] : (tensor<8x4xf32>) -> tensor<1x8x4xf32>
        %17 = stablehlo.dynamic_update_slice %iterArg_6, %16, %iterArg_3, %c_1, %c_1 : (tensor<3x8x4xf32>, tensor<1x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x8x4xf32>
        %18 = stablehlo.add %iterArg_3, %c : tensor<i32>
        stablehlo.return %iterArg, %18, %13, %15, %17 : tensor<3x2x4xf32>, tensor<i32>, tensor<8x4xf32>, tensor<3x4x4xf32>, tensor<3x8x4xf32>
      }
      %5 = stablehlo.multiply %4#2, %4#2 : tensor<8x4xf32>
      %6 = stablehlo.reduce(%5 init: %cst_2) applies stablehlo.add across dimensions = [0, 1] : (tensor<8x4xf32>, tensor<f32>) -> tensor<f32>
      %7 = "stablehlo.all_reduce"(%6) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
      ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
        %8 = stablehlo.add %arg4, %arg5 : tensor<f32>
        stablehlo.return %8 : tensor<f32>
      }) : (tensor<f32>) -> tensor<f32>
      sdy.return %7, %4#2, %4#3, %4#4 : tensor<f32>, tensor<8x4xf32>, tensor<3x4x4xf32>, tensor<3x8x4xf32>
    } : (tensor<3x4x4xf32>, tensor<16x4xf32>) -> (tensor<f32>, tensor<16x4xf32>, tensor<6x4x4xf32>, tensor<6x8x4xf32>)
    %1 = sdy.manual_computation(%cst, %0#1, %0#2, %0#3) in_shardings=[<@mesh, []>, <@mesh, [{"x"}, {}]>, <@mesh, [{"x"}, {}, {}]>, <@mesh, [{"x"}, {}, {}]>] out_shardings=[<@mesh, [{}, {"x"}, {}]>] manual_axes={"x"} (%arg2: tensor<f32>, %arg3: tensor<8x4xf32>, %arg4: tensor<3x4x4xf32>, %arg5: tensor<3x8x4xf32>) {
      %cst_0 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
      %c = stablehlo.constant dense<1> : tensor<i32>
      %c_1 = stablehlo.constant dense<3> : tensor<i32>
      %c_2 = stablehlo.constant dense<0> : tensor<i32>
      %cst_3 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<8x4xf32>
      %3 = stablehlo.multiply %2, %arg3 : tensor<8x4xf32>
      %4 = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<f32>) -> tensor<8x4xf32>
      %5 = stablehlo.multiply %4, %3 : tensor<8x4xf32>
      %6 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<3x2x4xf32>
      %7:5 = stablehlo.while(%iterArg = %arg4, %iterArg_5 = %arg5, %iterArg_6 = %c_2, %iterArg_7 = %5, %iterArg_8 = %6) : tensor<3x4x4xf32>, tensor<3x8x4xf32>, tensor<i32>, tensor<8x4xf32>, tensor<3x2x4xf32>
      cond {
        %8 = stablehlo.compare LT, %iterArg_6, %c_1, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %8 : tensor<i1>
      } do {
        %8 = stablehlo.subtract %c_1, %iterArg_6 : tensor<i32>
        %9 = stablehlo.subtract %8, %c : tensor<i32>
        %10 = stablehlo.dynamic_slice %iterArg, %9, %c_2, %c_2, sizes = [1, 4, 4] : (tensor<3x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
        %11 = stablehlo.reshape %10 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
        %12 = stablehlo.dynamic_slice %iterArg_5, %9, %c_2, %c_2, sizes = [1, 8, 4] : (tensor<3x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x4xf32>
        %13 = stablehlo.reshape %12 : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
        %14 = stablehlo.dynamic_slice %arg4, %9, %c_2, %c_2, sizes = [1, 4, 4] : (tensor<3x4x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x4x4xf32>
        %15 = stablehlo.reshape %14 : (tensor<1x4x4xf32>) -> tensor<4x4xf32>
        %16 = stablehlo.dynamic_slice %iterArg_5, %9, %c_2, %c_2, sizes = [1, 8, 4] : (tensor<3x8x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x4xf32>
        %17 = stablehlo.reshape %16 : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
        %18 = stablehlo.dot_general %17, %15, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
        %19 = stablehlo.tanh %18 : tensor<8x4xf32>
        %20 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<8x4xf32>
        %21 = stablehlo.subtract %20, %19 : tensor<8x4xf32>
        %22 = stablehlo.broadcast_in_dim %19, dims = [1, 2] : (tensor<8x4xf32>) -> tensor<1x8x4xf32>
        %23 = stablehlo.broadcast_in_dim %21, dims = [1, 2] : (tensor<8x4xf32>) -> tensor<1x8x4xf32>
        %24 = stablehlo.reshape %22 : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
        %25 = stablehlo.reshape %23 : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
        %26 = stablehlo.multiply %iterArg_7, %25 : tensor<8x4xf32>
        %27 = stablehlo.multiply %26, %24 : tensor<8x4xf32>
        %28 = stablehlo.add %26, %27 : tensor<8x4xf32>
        %29 = stablehlo.dot_general %28, %13, contracting_dims = [0] x [0] : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
        %30 = stablehlo.transpose %29, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
        %31 = stablehlo.dot_general %28, %11, contracting_dims = [1] x [1] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
        %32 = stablehlo.add %iterArg_7, %31 : tensor<8x4xf32>
        %33 = "stablehlo.reduce_scatter"(%30) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
        ^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
          %37 = stablehlo.add %arg6, %arg7 : tensor<f32>
          stablehlo.return %37 : tensor<f32>
        }) : (tensor<4x4xf32>) -> tensor<2x4xf32>
        %34 = stablehlo.broadcast_in_dim %33, dims = [1, 2] : (tensor<2x4xf32>) -> tensor<1x2x4xf32>
        %35 = stablehlo.dynamic_update_slice %iterArg_8, %34, %9, %c_2, %c_2 : (tensor<3x2x4xf32>, tensor<1x2x4xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x2x4xf32>
        %36 = stablehlo.add %iterArg_6, %c : tensor<i32>
        stablehlo.return %iterArg, %iterArg_5, %36, %32, %35 : tensor<3x4x4xf32>, tensor<3x8x4xf32>, tensor<i32>, tensor<8x4xf32>, tensor<3x2x4xf32>
      }
      sdy.return %7#4 : tensor<3x2x4xf32>
    } : (tensor<f32>, tensor<16x4xf32>, tensor<6x4x4xf32>, tensor<6x8x4xf32>) -> tensor<3x4x4xf32>
    return %0#0, %1 : tensor<f32>, tensor<3x4x4xf32>
  }
}
