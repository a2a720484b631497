#include "result_memory.h"

#include <cstdlib>
#include <deque>
#include <mutex>

namespace cgp {
namespace {

constexpr size_t kMostKept = size_t(1) << 26, kAlignment = 64;

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
  size_t step = kAlignment;
  while (step * 16 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

}  // namespace

void* take_memory(size_t bytes) {
  bytes = rounded(bytes);
  {
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
  return std::aligned_alloc(kAlignment, bytes);
}

void give_memory_back(void* data, size_t bytes, void*) {
  bytes = rounded(bytes);
  Kept& all = kept();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.blocks.push_back({data, bytes});
  all.bytes += bytes;
  while (all.bytes > kMostKept) {
    std::free(all.blocks.front().data);
    all.bytes -= all.blocks.front().bytes;
    all.blocks.pop_front();
  }
}

}  // namespace cgp
