#pragma once
#include <ATen/ATen.h>

#include "arguments.h"

// One AdamW step on flat, contiguous tensors in main memory, on all threads. `weight` and `gradient` are float32 or bf16;
// `master` may be null. `steps` includes this step.
void adamw_on_cpu(const at::Tensor &weight, const at::Tensor &gradient, float *master, const Moment &first,
                  const Moment &second, float steps, const Adam &adam);
