// Scratch memory that the system may back with huge pages (random reads then miss the TLB less).
#pragma once
#include <cstddef>
#include <cstdlib>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace hoplite {

template <class T>
class Buffer {
  public:
    explicit Buffer(std::size_t count) {
        if (count == 0) return;
        const std::size_t bytes = (count * sizeof(T) + page - 1) / page * page;
        data_ = static_cast<T*>(std::aligned_alloc(page, bytes));
        if (!data_) throw std::bad_alloc();
#if defined(__linux__) && defined(MADV_HUGEPAGE)
        madvise(data_, bytes, MADV_HUGEPAGE);  // advice only: a refusal changes nothing
#endif
    }
    ~Buffer() { std::free(data_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    T* data() { return data_; }

  private:
    static constexpr std::size_t page = std::size_t(2) << 20;
    T* data_ = nullptr;
};

}  // namespace hoplite
