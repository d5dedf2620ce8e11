module @jit_loops attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<16x64xf32>, %arg1: tensor<8x64x64xf32>, %arg2: tensor<i32>) -> (tensor<16x64xf32> {jax.result_info = "result[0]"}, tensor<8xf32> {jax.result_info = "result[1]"}) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<8xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1:4 = stablehlo.while(%iterArg = %arg1, %iterArg_3 = %c, %iterArg_4 = %arg0, %iterArg_5 = %0) : tensor<8x64x64xf32>, tensor<i32>, tensor<16x64xf32>, tensor<8xf32>
    cond {
      %c_6 = stablehlo.constant dense<8> : tensor<i32>
      %6 = stablehlo.compare LT, %iterArg_3, %c_6, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %6 : tensor<i1>
    } do {
      %6 = func.call @dynamic_index_in_dim(%iterArg, %iterArg_3) : (tensor<8x64x64xf32>, tensor<i32>) -> tensor<64x64xf32>
      %7:2 = func.call @closed_call(%iterArg_4, %6) : (tensor<16x64xf32>, tensor<64x64xf32>) -> (tensor<16x64xf32>, tensor<f32>)
      %8 = func.call @dynamic_update_index_in_dim(%iterArg_5, %7#1, %iterArg_3) : (tensor<8xf32>, tensor<f32>, tensor<i32>) -> tensor<8xf32>
      %c_6 = stablehlo.constant dense<1> : tensor<i32>
      %9 = stablehlo.add %iterArg_3, %c_6 : tensor<i32>
      stablehlo.return %iterArg, %9, %7#0, %8 : tensor<8x64x64xf32>, tensor<i32>, tensor<16x64xf32>, tensor<8xf32>
    }
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %2:3 = stablehlo.while(%iterArg = %c_1, %iterArg_3 = %c_0, %iterArg_4 = %1#2) : tensor<i32>, tensor<i32>, tensor<16x64xf32>
    cond {
      %c_5 = stablehlo.constant dense<5> : tensor<i32>
      %6 = stablehlo.compare LT, %iterArg, %c_5, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %6 : tensor<i1>
    } do {
      %6:2 = func.call @closed_call_0(%iterArg_3, %iterArg_4) : (tensor<i32>, tensor<16x64xf32>) -> (tensor<i32>, tensor<16x64xf32>)
      %c_5 = stablehlo.constant dense<1> : tensor<i32>
      %7 = stablehlo.add %iterArg, %c_5 : tensor<i32>
      stablehlo.return %7, %6#0, %6#1 : tensor<i32>, tensor<i32>, tensor<16x64xf32>
    }
    %c_2 = stablehlo.constant dense<3> : tensor<i32>
    %3 = stablehlo.compare GT, %arg2, %c_2, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %4 = stablehlo.convert %3 : (tensor<i1>) -> tensor<i32>
    %5 = "stablehlo.case"(%4) ({
      %6 = stablehlo.transpose %2#2, dims = [1, 0] : (tensor<16x64xf32>) -> tensor<64x16xf32>
      %7 = stablehlo.reshape %6 : (tensor<64x16xf32>) -> tensor<16x64xf32>
      stablehlo.return %7 : tensor<16x64xf32>
    }, {
      %cst_3 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
      %6 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<16x64xf32>
      %7 = stablehlo.add %2#2, %6 : tensor<16x64xf32>
      stablehlo.return %7 : tensor<16x64xf32>
    }) : (tensor<i32>) -> tensor<16x64xf32>
    return %5, %1#3 : tensor<16x64xf32>, tensor<8xf32>
  }
  func.func private @dynamic_index_in_dim(%arg0: tensor<8x64x64xf32>, %arg1: tensor<i32>) -> tensor<64x64xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, sizes = [1, 64, 64] : (tensor<8x64x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x64x64xf32>
    %1 = stablehlo.reshape %0 : (tensor<1x64x64xf32>) -> tensor<64x64xf32>
    return %1 : tensor<64x64xf32>
  }
  func.func private @closed_call(%arg0: tensor<16x64xf32>, %arg1: tensor<64x64xf32>) -> (tensor<16x64xf32>, tensor<f32>) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<16x64xf32>, tensor<64x64xf32>) -> tensor<16x64xf32>
    %1 = stablehlo.tanh %0 : tensor<16x64xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %2 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x64xf32>, tensor<f32>) -> tensor<f32>
    return %1, %2 : tensor<16x64xf32>, tensor<f32>
  }
  func.func private @dynamic_update_index_in_dim(%arg0: tensor<8xf32>, %arg1: tensor<f32>, %arg2: tensor<i32>) -> tensor<8xf32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f32>) -> tensor<1xf32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2 : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
    return %1 : tensor<8xf32>
  }
  func.func private @closed_call_0(%arg0: tensor<i32>, %arg1: tensor<16x64xf32>) -> (tensor<i32>, tensor<16x64xf32>) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.add %arg0, %c : tensor<i32>
    %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<16x64xf32>
    %2 = stablehlo.multiply %arg1, %1 : tensor<16x64xf32>
    %3 = stablehlo.convert %arg0 : (tensor<i32>) -> tensor<f32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<f32>) -> tensor<16x64xf32>
    %5 = stablehlo.add %2, %4 : tensor<16x64xf32>
    return %0, %5 : tensor<i32>, tensor<16x64xf32>
  }
}
