// One small example of every op that is more than elementwise: the function's name says which op is looked at.

func.func @stablehlo.compare(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>) -> tensor<2x3xi1> {
  %0 = stablehlo.compare LT, %x, %y : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
  return %0 : tensor<2x3xi1>
}

func.func @stablehlo.select(%c: tensor<2x3xi1>, %x: tensor<2x3xf32>, %y: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.select %c, %x, %y : tensor<2x3xi1>, tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @stablehlo.reduce_precision(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.reduce_precision %x, format = e5m10 : tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @sdy.sharding_constraint(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = sdy.sharding_constraint %x <mesh<["x"=2]>, [{?}, {?}]> : tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @stablehlo.constant() -> tensor<2x3xf32> {
  %0 = stablehlo.constant dense<1.0> : tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @stablehlo.iota() -> tensor<2x3xi32> {
  %0 = stablehlo.iota dim = 1 : tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

func.func @stablehlo.broadcast_in_dim(%x: tensor<2xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<2xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @stablehlo.reshape(%x: tensor<6x5xf32>) -> tensor<2x3x5xf32> {
  %0 = stablehlo.reshape %x : (tensor<6x5xf32>) -> tensor<2x3x5xf32>
  return %0 : tensor<2x3x5xf32>
}

func.func @stablehlo.transpose(%x: tensor<2x3xf32>) -> tensor<3x2xf32> {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}

func.func @stablehlo.slice(%x: tensor<2x5xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.slice %x [0:2, 1:4] : (tensor<2x5xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @stablehlo.dynamic_slice(%x: tensor<2x5xf32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<2x3xf32> {
  %0 = stablehlo.dynamic_slice %x, %i, %j, sizes = [2, 3] : (tensor<2x5xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @stablehlo.dynamic_update_slice(%x: tensor<2x5xf32>, %u: tensor<2x3xf32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<2x5xf32> {
  %0 = stablehlo.dynamic_update_slice %x, %u, %i, %j : (tensor<2x5xf32>, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<2x5xf32>
  return %0 : tensor<2x5xf32>
}

func.func @stablehlo.concatenate(%x: tensor<2x3xf32>, %y: tensor<2x5xf32>) -> tensor<2x8xf32> {
  %0 = stablehlo.concatenate %x, %y, dim = 1 : (tensor<2x3xf32>, tensor<2x5xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

func.func @stablehlo.pad(%x: tensor<2x3xf32>, %v: tensor<f32>) -> tensor<2x5xf32> {
  %0 = stablehlo.pad %x, %v, low = [0, 1], high = [0, 1], interior = [0, 0] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x5xf32>
  return %0 : tensor<2x5xf32>
}

func.func @stablehlo.reverse(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.reverse %x, dims = [1] : tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @stablehlo.sort(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) {dimension = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @chlo.top_k(%x: tensor<2x5xf32>) -> (tensor<2x3xf32>, tensor<2x3xi32>) {
  %0, %1 = chlo.top_k(%x, k = 3) : tensor<2x5xf32> -> (tensor<2x3xf32>, tensor<2x3xi32>)
  return %0, %1 : tensor<2x3xf32>, tensor<2x3xi32>
}

func.func @stablehlo.reduce(%x: tensor<2x3xf32>, %v: tensor<f32>) -> tensor<2xf32> {
  %0 = stablehlo.reduce(%x init: %v) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

func.func @stablehlo.reduce.maximum(%x: tensor<2x3xf32>, %v: tensor<f32>) -> tensor<2xf32> {
  %0 = stablehlo.reduce(%x init: %v) applies stablehlo.maximum across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

func.func @stablehlo.reduce.divide(%x: tensor<2x3xf32>, %v: tensor<f32>) -> tensor<2xf32> {
  %0 = "stablehlo.reduce"(%x, %v) <{dimensions = array<i64: 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.divide %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

func.func @stablehlo.dot_general(%x: tensor<2x3x5xf32>, %y: tensor<2x5x7xf32>) -> tensor<2x3x7xf32> {
  %0 = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x3x5xf32>, tensor<2x5x7xf32>) -> tensor<2x3x7xf32>
  return %0 : tensor<2x3x7xf32>
}

func.func @stablehlo.convolution(%x: tensor<2x8x3xf32>, %k: tensor<4x3x5xf32>) -> tensor<2x5x5xf32> {
  %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x3xf32>, tensor<4x3x5xf32>) -> tensor<2x5x5xf32>
  return %0 : tensor<2x5x5xf32>
}

func.func @stablehlo.reduce_window(%x: tensor<2x6xf32>, %v: tensor<f32>) -> tensor<2x3xf32> {
  %0 = "stablehlo.reduce_window"(%x, %v) <{window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<2x6xf32>, tensor<f32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @stablehlo.reduce_window.cumulative(%x: tensor<2x6xf32>) -> tensor<2x6xf32> {
  %v = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %v) <{padding = dense<[[0, 0], [5, 0]]> : tensor<2x2xi64>, window_dimensions = array<i64: 1, 6>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<2x6xf32>, tensor<f32>) -> tensor<2x6xf32>
  return %0 : tensor<2x6xf32>
}

func.func @stablehlo.select_and_scatter(%x: tensor<2x6xf32>, %y: tensor<2x3xf32>, %v: tensor<f32>) -> tensor<2x6xf32> {
  %0 = "stablehlo.select_and_scatter"(%x, %y, %v) <{window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<2x6xf32>, tensor<2x3xf32>, tensor<f32>) -> tensor<2x6xf32>
  return %0 : tensor<2x6xf32>
}

func.func @stablehlo.gather(%x: tensor<5x3xf32>, %i: tensor<2x1xi32>) -> tensor<2x3xf32> {
  %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 3>}> : (tensor<5x3xf32>, tensor<2x1xi32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @stablehlo.gather.windows(%x: tensor<5x3xf32>, %i: tensor<2x1xi32>) -> tensor<2x4x3xf32> {
  %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 4, 3>}> : (tensor<5x3xf32>, tensor<2x1xi32>) -> tensor<2x4x3xf32>
  return %0 : tensor<2x4x3xf32>
}

func.func @stablehlo.scatter(%x: tensor<5x3xf32>, %i: tensor<2x1xi32>, %u: tensor<2x3xf32>) -> tensor<5x3xf32> {
  %0 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<5x3xf32>, tensor<2x1xi32>, tensor<2x3xf32>) -> tensor<5x3xf32>
  return %0 : tensor<5x3xf32>
}

func.func @stablehlo.fft(%x: tensor<2x4xcomplex<f32>>) -> tensor<2x4xcomplex<f32>> {
  %0 = stablehlo.fft %x, type = FFT, length = [4] : (tensor<2x4xcomplex<f32>>) -> tensor<2x4xcomplex<f32>>
  return %0 : tensor<2x4xcomplex<f32>>
}

func.func @stablehlo.cholesky(%x: tensor<2x3x3xf32>) -> tensor<2x3x3xf32> {
  %0 = stablehlo.cholesky %x, lower = true : tensor<2x3x3xf32>
  return %0 : tensor<2x3x3xf32>
}

func.func @stablehlo.triangular_solve(%a: tensor<2x3x3xf32>, %b: tensor<2x3x5xf32>) -> tensor<2x3x5xf32> {
  %0 = "stablehlo.triangular_solve"(%a, %b) <{left_side = true, lower = true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> : (tensor<2x3x3xf32>, tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
  return %0 : tensor<2x3x5xf32>
}

func.func @stablehlo.custom_call(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.custom_call @somebody_elses(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @stablehlo.custom_call.with_rule(%x: tensor<2x3x3xf32>) -> tensor<2x3x3xf32> {
  %0 = stablehlo.custom_call @lapack_spotrf_ffi(%x) {sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k]) -> ([i, j, k]) {i=2, j=3, k=3} need_replication={j, k}, custom>} : (tensor<2x3x3xf32>) -> tensor<2x3x3xf32>
  return %0 : tensor<2x3x3xf32>
}

func.func @stablehlo.custom_call.ApproxTopK(%x: tensor<2x8xf32>, %i: tensor<2x8xi32>, %least: tensor<f32>, %none: tensor<i32>) -> (tensor<2x3xf32>, tensor<2x3xi32>) {
  %0:2 = stablehlo.custom_call @ApproxTopK(%x, %i, %least, %none) {mhlo.backend_config = {aggregate_to_topk = true, recall_target = 9.5e-01 : f32, reduction_dim = 1 : i64, reduction_input_size_override = -1 : i64, top_k = 3 : i64}} : (tensor<2x8xf32>, tensor<2x8xi32>, tensor<f32>, tensor<i32>) -> (tensor<2x3xf32>, tensor<2x3xi32>)
  return %0#0, %0#1 : tensor<2x3xf32>, tensor<2x3xi32>
}

func.func @stablehlo.while(%n: tensor<i32>, %h: tensor<2x3xf32>, %w: tensor<3x3xf32>) -> tensor<2x3xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %c = %h) : tensor<i32>, tensor<2x3xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dot_general %c, %w, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>
    %2 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %2, %1 : tensor<i32>, tensor<2x3xf32>
  }
  return %0#1 : tensor<2x3xf32>
}

func.func @stablehlo.case(%i: tensor<i32>, %x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "stablehlo.case"(%i) ({
    %1 = stablehlo.sine %x : tensor<2x3xf32>
    stablehlo.return %1 : tensor<2x3xf32>
  }, {
    %1 = stablehlo.reverse %x, dims = [1] : tensor<2x3xf32>
    stablehlo.return %1 : tensor<2x3xf32>
  }) : (tensor<i32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @stablehlo.if(%p: tensor<i1>, %x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "stablehlo.if"(%p) ({
    %1 = stablehlo.sine %x : tensor<2x3xf32>
    stablehlo.return %1 : tensor<2x3xf32>
  }, {
    %1 = stablehlo.cosine %x : tensor<2x3xf32>
    stablehlo.return %1 : tensor<2x3xf32>
  }) : (tensor<i1>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @chlo.ragged_dot(%x: tensor<6x4xf32>, %w: tensor<3x4x5xf32>, %s: tensor<3xi32>) -> tensor<6x5xf32> {
  %0 = "chlo.ragged_dot"(%x, %w, %s) <{precision_config = [#chlo<precision DEFAULT>, #chlo<precision DEFAULT>], ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}> : (tensor<6x4xf32>, tensor<3x4x5xf32>, tensor<3xi32>) -> tensor<6x5xf32>
  return %0 : tensor<6x5xf32>
}

func.func @stablehlo.all_reduce(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %1 = stablehlo.add %l, %r : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @stablehlo.reduce_scatter(%x: tensor<2x3xf32>) -> tensor<1x3xf32> {
  %0 = "stablehlo.reduce_scatter"(%x) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %1 = stablehlo.add %l, %r : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<2x3xf32>) -> tensor<1x3xf32>
  return %0 : tensor<1x3xf32>
}

func.func @stablehlo.all_gather(%x: tensor<2x3xf32>) -> tensor<2x6xf32> {
  %0 = "stablehlo.all_gather"(%x) <{all_gather_dim = 1 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<2x3xf32>) -> tensor<2x6xf32>
  return %0 : tensor<2x6xf32>
}

func.func @stablehlo.all_to_all(%x: tensor<2x3xf32>) -> tensor<1x6xf32> {
  %0 = "stablehlo.all_to_all"(%x) <{split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<2x3xf32>) -> tensor<1x6xf32>
  return %0 : tensor<1x6xf32>
}

func.func @stablehlo.collective_broadcast(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "stablehlo.collective_broadcast"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @stablehlo.collective_permute(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "stablehlo.collective_permute"(%x) <{source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}> : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

func.func @sdy.manual_computation(%x: tensor<4x3xf32>, %w: tensor<3x5xf32>) -> tensor<4x5xf32> {
  %0 = sdy.manual_computation(%x, %w) in_shardings=[<mesh<["x"=2]>, [{"x"}, {}]>, <mesh<["x"=2]>, [{}, {}]>] out_shardings=[<mesh<["x"=2]>, [{"x"}, {}]>] manual_axes={"x"} (%a: tensor<2x3xf32>, %b: tensor<3x5xf32>) {
    %1 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3x5xf32>) -> tensor<2x5xf32>
    sdy.return %1 : tensor<2x5xf32>
  } : (tensor<4x3xf32>, tensor<3x5xf32>) -> tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}
