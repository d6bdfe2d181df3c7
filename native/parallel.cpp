// The pool of threads: started when first needed, asleep when there is nothing to do.
#include "parallel.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#ifdef __linux__
#include <sched.h>
#endif
#ifndef _WIN32
#include <unistd.h>
#endif

namespace hoplite {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int max_helpers = 255;
// Helpers look out for the next job this long before they sleep: the kernels of a training step
// follow one another within it, and waking a thread takes about as long.
constexpr std::chrono::microseconds lookout{50};

// A wait longer than this is no ordinary one: a thread must have lost its core.
constexpr std::chrono::microseconds patience{200};

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

class Pool {
  public:
    void run(int threads, void (*f)(void*, int), void* context) {
        const int wanted = std::min(threads - 1, max_helpers);
        if (wanted < 1 || busy_.exchange(true, std::memory_order_acquire)) return f(context, 0);
        start(wanted);
        const int64_t seats = int64_t(std::min(wanted, helpers_));
        f_ = f, context_ = context;
        finished_.store(0, std::memory_order_relaxed);
        caller_core_.store(this_core(), std::memory_order_relaxed);
        offer_.store(seats);
        if (seats > 0 && sleepers_.load() > 0) {
            std::lock_guard<std::mutex> lock(mutex_);
            seats == 1 ? wake_.notify_one() : wake_.notify_all();
        }
        f(context, 0);
        const int64_t begun = seats - offer_.exchange(0);  // whoever comes now is too late
        wait_for(finished_, begun);
        busy_.store(false, std::memory_order_release);
    }

  private:
    void start(int wanted) {
        try {
            for (; helpers_ < wanted; ++helpers_) std::thread([this] { help(); }).detach();
        } catch (const std::system_error&) {
            // The system gives us no more threads: fewer have to do.
        }
    }

    // Takes a seat of the job on offer: its number from 1 on, or 0 if there is none. On the
    // caller's own core a helper would only be in its way.
    int take_seat() {
        int64_t seats = offer_.load();
        if (seats > 0 && on_core(caller_core_.load(std::memory_order_relaxed))) return 0;
        while (seats > 0)
            if (offer_.compare_exchange_weak(seats, seats - 1)) return int(seats);
        return 0;
    }

    int wait_for_seat() {
        const Clock::time_point end = Clock::now() + lookout;
        bool offered = false;
        do {
            for (int i = 0; i < 32 && !offered; ++i, relax())
                if ((offered = offer_.load(std::memory_order_relaxed) > 0))
                    if (const int seat = take_seat()) return seat;
        } while (!offered && Clock::now() < end);
        std::unique_lock<std::mutex> lock(mutex_);
        sleepers_.fetch_add(1);
        int seat = 0;
        wake_.wait(lock, [&] { return (seat = take_seat()) > 0; });
        sleepers_.fetch_sub(1);
        return seat;
    }

    void help() {
        for (;;) {
            const int seat = wait_for_seat();
            f_(context_, seat);  // the caller changes neither before this helper has finished
            finished_.fetch_add(1, std::memory_order_release);
        }
    }

    std::atomic<bool> busy_{false};  // one call at a time has the helpers
    int helpers_ = 0;
    void (*f_)(void*, int) = nullptr;
    void* context_ = nullptr;
    alignas(64) std::atomic<int64_t> offer_{0};  // seats left
    alignas(64) std::atomic<int64_t> finished_{0};
    std::atomic<int> caller_core_{-1};
    std::atomic<int> sleepers_{0};
    std::mutex mutex_;
    std::condition_variable wake_;
};

#ifdef _WIN32
int64_t process() { return 0; }
#else
int64_t process() { return int64_t(getpid()); }
#endif

// The pool of this process. A forked child has its parent's memory but not its threads, so it
// starts a pool of its own. Pools are never freed: their threads may outlive everything else.
Pool& pool() {
    struct Owned {
        int64_t process;
        Pool pool;
    };
    static std::atomic<Owned*> current{nullptr};
    Owned* known = current.load(std::memory_order_acquire);
    const int64_t own = process();
    while (!known || known->process != own) {
        Owned* fresh = new Owned{own, {}};
        if (current.compare_exchange_strong(known, fresh, std::memory_order_acq_rel))
            known = fresh;
        else
            delete fresh;
    }
    return known->pool;
}

// How long the last calls of one size took this thread, alone and with help. Calls with help come
// first, then a few alone, then the faster way, but for `tries` calls of every `period` the other
// one. The first call of a try is not counted: helpers are asleep, and data is in the wrong caches.
struct Experience {
    static constexpr int64_t tries = 4, period = 128, remembered = 5;
    int64_t work = 0;
    int threads = 0;
    int64_t calls = 0;
    Clock::duration taken[2][remembered] = {};
    int64_t count[2] = {};

    Clock::duration median(bool help) const {
        Clock::duration sorted[remembered];
        const int64_t known = std::min(count[help], remembered);
        std::copy_n(taken[help], known, sorted);
        std::sort(sorted, sorted + known);
        return sorted[known / 2];
    }
    bool help() const {
        if (calls < 2 * tries) return calls < tries;
        const bool faster = median(true) <= median(false);
        return calls % period < period - tries ? faster : !faster;
    }
    void add(bool help, Clock::duration time) {
        const bool first = calls == 0 || calls == tries || calls % period == period - tries;
        ++calls;
        if (!first) taken[help][count[help]++ % remembered] = time;
    }
};

Experience& experience(int64_t work, int threads) {
    static thread_local Experience known[64];
    Experience& own = known[(uint64_t(work) * 0x9E3779B97F4A7C15u + uint64_t(threads)) >> 58];
    if (own.work != work || own.threads != threads) {
        own = {};
        own.work = work, own.threads = threads;
    }
    return own;
}

}  // namespace

Team::Team(int wanted, int64_t work) : work_(work), wanted_(wanted), threads(wanted) {
    wanted_ = threads = useful_threads(wanted, work);
    if (wanted_ == 1) return;
    if (!experience(work_, wanted_).help()) threads = 1;
    begin_ = Clock::now();
}

Team::~Team() {
    if (wanted_ == 1) return;
    experience(work_, wanted_).add(threads > 1, Clock::now() - begin_);
}

bool wait_for(const std::atomic<int64_t>& counter, int64_t target) {
    for (int spins = 0; spins < 1000; ++spins, relax())
        if (counter.load(std::memory_order_acquire) >= target) return true;
    const Clock::time_point begin = Clock::now();
    while (counter.load(std::memory_order_acquire) < target) std::this_thread::yield();
    return Clock::now() - begin < patience;
}

int this_core() {
#ifdef __linux__
    return sched_getcpu();
#else
    return -1;
#endif
}

void in_team(int threads, void (*f)(void*, int), void* context) {
    pool().run(threads, f, context);
}

}  // namespace hoplite
