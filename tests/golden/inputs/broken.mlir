func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.tanh %b : tensor<4xf32>
