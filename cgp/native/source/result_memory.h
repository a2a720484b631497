// Memory for large results, kept for the next one of about its size when a tensor is dropped.
//
// The system hands out memory page by page, as it is written to for the first time, and clears each:
// for a matrix of order 512 that takes longer than a rank-one update of it. What is kept is bounded.
#pragma once
#include <cstddef>

namespace cgp {

// Smaller results are not worth it, and of larger ones a single one would fill what is kept.
constexpr size_t kLeastResult = size_t(1) << 18, kLargestResult = size_t(1) << 25;

// Memory of at least so many bytes, aligned as TensorFlow needs it; null where there is none.
void* take_memory(size_t bytes);

// Takes it back; of a signature that TensorFlow calls.
void give_memory_back(void* data, size_t bytes, void*);

}  // namespace cgp
