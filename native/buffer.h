// Memory for intermediate results: aligned, on huge pages where it is large, kept between calls.
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

constexpr std::size_t cache_line = 64;
constexpr std::size_t huge_page = std::size_t(2) << 20;

// Ask for huge pages (far reads and writes then miss the TLB less) in memory that is about to be
// written; only whole ones lie inside it. Advice only: a refusal changes nothing.
inline void prefer_huge_pages(void* begin, std::size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    const auto first = (address + huge_page - 1) / huge_page * huge_page;
    const auto last = (address + bytes) / huge_page * huge_page;
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

// Bytes that one thread uses for one call after another, so that the system need not hand them out
// (and clear them) each time. More than `kept` bytes are given back after the call.
class Scratch {
  public:
    static constexpr std::size_t kept = std::size_t(64) << 20;

    ~Scratch() { release(); }
    void* reserve(std::size_t bytes) {
        if (bytes <= size_) return memory_;
        release();
        const std::size_t unit = bytes < huge_page ? std::size_t(4096) : huge_page;
        const std::size_t whole = (bytes + unit - 1) / unit * unit;
#ifdef _WIN32  // whose C library has no aligned_alloc
        memory_ = _aligned_malloc(whole, unit);
#else
        memory_ = std::aligned_alloc(unit, whole);
#endif
        if (!memory_) throw std::bad_alloc();
        size_ = whole;
        prefer_huge_pages(memory_, whole);
        return memory_;
    }
    void trim() {
        if (size_ > kept) release();
    }

  private:
    void release() {
#ifdef _WIN32
        _aligned_free(memory_);
#else
        std::free(memory_);
#endif
        memory_ = nullptr, size_ = 0;
    }
    void* memory_ = nullptr;
    std::size_t size_ = 0;
};

// Room for one call, cut into arrays that begin on a cache line. Its contents are undefined.
class Room {
  public:
    explicit Room(std::size_t bytes) : next_(static_cast<char*>(scratch().reserve(bytes))) {}
    ~Room() { scratch().trim(); }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;

    template <class T>
    static std::size_t bytes(int64_t count) {
        return (std::size_t(count) * sizeof(T) + cache_line - 1) / cache_line * cache_line;
    }
    template <class T>
    T* take(int64_t count) {
        char* const begin = next_;
        next_ += bytes<T>(count);
        return reinterpret_cast<T*>(begin);
    }

  private:
    static Scratch& scratch() {  // a thread makes one call at a time
        static thread_local Scratch own;
        return own;
    }
    char* next_;
};

}  // namespace hoplite
