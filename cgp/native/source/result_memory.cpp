#include "result_memory.h"

#include <sys/mman.h>

#include <deque>
#include <mutex>

namespace cgp {
namespace {

constexpr size_t kMostKept = size_t(1) << 26, kPage = 4096;

struct Block {
  void* data;
  size_t bytes;
};

struct Kept {
  std::mutex mutex;
  std::deque<Block> blocks;  // the oldest first
  size_t bytes = 0;
};

// Never destroyed: tensors may be dropped after everything else.
Kept& kept() {
  static Kept* const kept = new Kept;
  return *kept;
}

// Results of about one size share blocks.
size_t rounded(size_t bytes) {
  size_t step = kPage;
  while (step * 16 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

// Smaller results are not worth it. Larger ones go back to the system at once: one would fill what is
// kept, and TensorFlow's allocator holds such memory where a call from another thread finds none.
constexpr size_t kLeast = size_t(1) << 18, kLargest = size_t(1) << 26;

}  // namespace

void* take_memory(size_t bytes) {
  if (bytes < kLeast) return nullptr;
  bytes = rounded(bytes);
  if (bytes <= kLargest) {
    Kept& all = kept();
    const std::lock_guard<std::mutex> lock(all.mutex);
    for (size_t i = all.blocks.size(); i-- > 0;) {
      const Block block = all.blocks[i];
      if (block.bytes != bytes) continue;
      all.blocks.erase(all.blocks.begin() + i);
      all.bytes -= bytes;
      return block.data;
    }
  }
  // Not from the heap, which could not shrink below a block that is kept.
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
#ifdef MADV_HUGEPAGE
  madvise(data, bytes, MADV_HUGEPAGE);  // a fault for each 4 kB takes longer than to fill it
#endif
  return data;
}

void give_memory_back(void* data, size_t bytes, void*) {
  bytes = rounded(bytes);
  if (bytes > kLargest) {
    munmap(data, bytes);
    return;
  }
  Kept& all = kept();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.blocks.push_back({data, bytes});
  all.bytes += bytes;
  while (all.bytes > kMostKept) {
    munmap(all.blocks.front().data, all.blocks.front().bytes);
    all.bytes -= all.blocks.front().bytes;
    all.blocks.pop_front();
  }
}

}  // namespace cgp
