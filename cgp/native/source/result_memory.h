// Memory for large results and copies, kept for the next of about the size when one is dropped.
//
// The system hands out memory page by page, as it is written to for the first time, and clears each:
// for a matrix of order 512 that takes longer than a rank-one update of it. What is kept is bounded.
#pragma once
#include <cstddef>

namespace cgp {

// Memory of at least so many bytes, aligned as TensorFlow needs it; null for sizes that do not gain
// by it, and where there is none.
void* take_memory(size_t bytes);

// Takes it back; of a signature that TensorFlow calls.
void give_memory_back(void* data, size_t bytes, void*);

}  // namespace cgp
