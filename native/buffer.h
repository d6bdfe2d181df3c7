// Memory that the system may back with huge pages (far reads and writes then miss the TLB less).
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#elif defined(_WIN32)
#include <malloc.h>
#endif

namespace hoplite {

constexpr std::size_t huge_page = std::size_t(2) << 20;

// Ask for huge pages in memory that is about to be written; only whole ones lie inside it. Advice
// only: a refusal changes nothing, nor do pages that are there already.
inline void prefer_huge_pages(void* begin, std::size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    const auto first = (address + huge_page - 1) / huge_page * huge_page;
    const auto last = (address + bytes) / huge_page * huge_page;
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

#ifdef _WIN32  // whose C library has no aligned_alloc
inline void* allocate_aligned(std::size_t bytes) { return _aligned_malloc(bytes, huge_page); }
inline void free_aligned(void* memory) { _aligned_free(memory); }
#else
inline void* allocate_aligned(std::size_t bytes) { return std::aligned_alloc(huge_page, bytes); }
inline void free_aligned(void* memory) { std::free(memory); }
#endif

template <class T>
class Buffer {
  public:
    explicit Buffer(std::size_t count) {
        if (count == 0) return;
        const std::size_t bytes = (count * sizeof(T) + huge_page - 1) / huge_page * huge_page;
        data_ = static_cast<T*>(allocate_aligned(bytes));
        if (!data_) throw std::bad_alloc();
        prefer_huge_pages(data_, bytes);
    }
    ~Buffer() { free_aligned(data_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    T* data() { return data_; }

  private:
    T* data_ = nullptr;
};

}  // namespace hoplite
